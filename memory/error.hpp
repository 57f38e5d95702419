// SPDX-License-Identifier: Apache-2.0
// The one error vocabulary. Blocking calls throw `error`; asynchronous ones return the std::error_code.
#pragma once

#include <memory>
#include <string>
#include <system_error>

#include "memory/export.hpp"

namespace troupe {

enum class errc : int {
  ok = 0,
  invalid_argument,
  null_buffer,           // null pointer with a count that is not zero
  size_overflow,         // count x element size does not fit
  bad_root,              // root is not a rank of the communicator
  buffers_overlap,       // input and output overlap without being the same
  unsupported_type,      // the operation is not defined on this type, e.g. band on floats
  unsupported,           // no choreography can do it
  mismatch,              // ranks called different operations
  timed_out,             // the deadline passed
  cancelled,             // the request was cancelled
  aborted,               // the operation was aborted
  rank_missing,          // a rank never came
  communicator_aborted,  // the communicator was aborted earlier
  engine_closed,         // the engine was destroyed or is shutting down
  actor_lost,            // an actor ended with the operation under way
  bad_score,             // a score does not verify or cannot be read
  bad_config,            // a configuration does not follow the schema
  message_lost,          // nothing moves any more although every rank has come
  io,                    // reading or writing a file failed
  out_of_memory,         // an allocation failed
  peer_refused,          // another rank made this call with arguments that were refused there
  peer_lost,             // another process of the job ended, or does not answer any more
  revoked,               // the communicator was revoked by one of its ranks
};
inline constexpr errc last_errc = errc::revoked;

/// Category "troupe". Where a std::errc means the same, codes compare equal to it (timed_out, operation_canceled …).
TROUPE_API const std::error_category& troupe_category() noexcept;
TROUPE_API std::error_code make_error_code(errc code) noexcept;

/// what() is exactly the message given: it says what was wrong, where, and what would be right.
/// Copies do not allocate, so copying while another exception is under way is safe.
class TROUPE_API error : public std::system_error {
public:
  error(errc code, std::string message);

  const char* what() const noexcept override { return message_->c_str(); }
  errc code_value() const noexcept { return static_cast<errc>(code().value()); }

private:
  std::shared_ptr<const std::string> message_;
};

}  // namespace troupe

template <>
struct std::is_error_code_enum<troupe::errc> : std::true_type {};
