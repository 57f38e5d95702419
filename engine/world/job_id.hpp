// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an id (engine/api/job_id.hpp) says, and the text by which a job that grows invites new processes (communicator::grow): an id, too.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/api/job_id.hpp"

namespace troupe {

namespace actors {
class rendezvous_service;
class tls_identity;
}  // namespace actors

struct meeting {
  std::string rendezvous;  ///< addresses, the best first, separated by commas
  std::string key;         ///< hexadecimal; never to be shown
  bool one_host = false;   ///< nobody can come from another one
  // Of an invitation; else 0:
  std::uint32_t before = 0;  ///< processes of the job that grows, which are the first of the new one
  std::uint32_t fresh = 0;   ///< processes that are invited
};

/// Throws error: invalid_argument (no id), mismatch (of another build).
meeting meeting_of(const job_id& which);

/// An id, and the service behind it.
struct served_id {
  job_id id;
  std::unique_ptr<actors::rendezvous_service> service;
};
/// For a job of `before` processes that invites `fresh`; or, with none of both, for one that begins. Throws error as make_id().
/// @param tls null: without; what `options` say of it is not looked at
served_id serve_id(const id_options& options, const std::string& interfaces, std::uint32_t before, std::uint32_t fresh,
                   std::shared_ptr<const actors::tls_identity> tls);
/// Until all have come, or its time is over; or the process ends.
void serve_in_background(std::unique_ptr<actors::rendezvous_service> one);

/// An invitation as a text: one word, which is as secret as a key.
std::string text_of_invitation(const job_id& which);
/// It looks like one.
bool is_invitation(std::string_view text);
/// Throws error: bad_config (not a whole one), mismatch (of another build).
meeting meeting_of_invitation(std::string_view text);

}  // namespace troupe
