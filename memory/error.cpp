// SPDX-License-Identifier: Apache-2.0
#include "memory/error.hpp"

#include <utility>

namespace troupe {

namespace {

const char* text_of(errc code) noexcept {
  switch (code) {
    case errc::ok: return "no error";
    case errc::invalid_argument: return "invalid argument";
    case errc::null_buffer: return "null buffer with a count that is not zero";
    case errc::size_overflow: return "count times element size overflows";
    case errc::bad_root: return "root is not a rank of the communicator";
    case errc::buffers_overlap: return "input and output overlap";
    case errc::unsupported_type: return "operation is not defined on this type";
    case errc::unsupported: return "no choreography can do this";
    case errc::mismatch: return "ranks called different operations";
    case errc::timed_out: return "deadline passed";
    case errc::cancelled: return "cancelled";
    case errc::aborted: return "aborted";
    case errc::rank_missing: return "a rank never came";
    case errc::communicator_aborted: return "communicator was aborted";
    case errc::engine_closed: return "engine is closed";
    case errc::actor_lost: return "an actor was lost";
    case errc::bad_score: return "bad score";
    case errc::bad_config: return "bad configuration";
    case errc::message_lost: return "a message was lost";
    case errc::io: return "input or output failed";
    case errc::out_of_memory: return "out of memory";
    case errc::peer_refused: return "another rank's call was refused";
    case errc::peer_lost: return "another process was lost";
    case errc::revoked: return "communicator was revoked";
  }
  return "unknown error";
}

class category final : public std::error_category {
public:
  const char* name() const noexcept override { return "troupe"; }
  std::string message(int code) const override { return text_of(static_cast<errc>(code)); }

  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<errc>(code)) {
      case errc::invalid_argument:
      case errc::null_buffer:
      case errc::bad_root: return std::errc::invalid_argument;
      case errc::size_overflow: return std::errc::value_too_large;
      case errc::unsupported_type:
      case errc::unsupported: return std::errc::operation_not_supported;
      case errc::timed_out: return std::errc::timed_out;
      case errc::cancelled: return std::errc::operation_canceled;
      case errc::io: return std::errc::io_error;
      case errc::out_of_memory: return std::errc::not_enough_memory;
      default: return {code, *this};
    }
  }
};

}  // namespace

const std::error_category& troupe_category() noexcept {
  // Never destroyed: error codes may be compared while other static objects go away.
  static const category& instance =
      *new category;  // NOLINT(bugprone-unhandled-exception-at-new): without it there is nothing to say
  return instance;
}

std::error_code make_error_code(errc code) noexcept { return {static_cast<int>(code), troupe_category()}; }

error::error(errc code, std::string message)
    : std::system_error{make_error_code(code)}, message_{std::make_shared<const std::string>(std::move(message))} {}

}  // namespace troupe
