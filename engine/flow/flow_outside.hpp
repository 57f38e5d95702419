// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "engine/flow/flow_parts.hpp"
#include "memory/error.hpp"
#include "memory/exception_text.hpp"
#include "protocols/agreement/agreement.hpp"

namespace troupe {

/// Performs a node that may wait for other ranks: it has a thread of its own, where an operator has the run's turn. Such a node takes a tile and gives
/// one of the same number, later; its tiles are kept until the end of the run.
///   start(…)      begins a run
///   ready(tile)   it may be read, and where it goes may be written; each once in a run, in any order
///   end(why)      the run has failed: nothing more is given, and ended() is called soon
class flow_outside {
public:
  virtual ~flow_outside() = default;
  /// @param who the node, for texts of failures @param given called with the number of each tile that has been written @param ended called once, when no tile
  /// is touched any more; null: all were given. Both from any thread, also before this returns. Throws error: it cannot begin, and ended() is not called.
  virtual void start(const std::string& who, std::function<void(int)> given,
                     std::function<void(const failure_ptr&)> ended) = 0;
  virtual void ready(const tile_place& in, const tile_place& out) = 0;
  virtual void end(const failure_ptr& why) = 0;
};

/// The exception under way, as a run ends with it on all ranks. Any thread. Throws std::bad_alloc. @param where what threw it @pre in a handler
inline failure_ptr failure_under_way(const std::string& where) {
  errc code = errc::aborted;
  try {
    throw;
  } catch (const error& e) {
    code = e.code_value();
  } catch (...) {}  // its text is all that is known of it
  return make_failure(code, where + ": " + text_of(std::current_exception()));
}

}  // namespace troupe
