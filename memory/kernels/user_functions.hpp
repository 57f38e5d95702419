// SPDX-License-Identifier: Apache-2.0
#pragma once
// The functions of the program's own that reduce, while they run. Nothing can end one that does not return, but a program that hangs in one should not
// do so without a word: each thread says what it calls, and whoever watches finds what has not returned.
//
// A thread writes its place before and after the call: `number` is odd in between, and another one each time. A watcher that sees one odd number again has
// seen one call last. Watchers sleep while nothing runs: a thread that begins a call stores its number, then reads whether all of them sleep; a watcher that
// falls asleep says so, then reads the numbers (all sequentially consistent): one of them sees the other.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sys/types.h>

#include "memory/types/types.hpp"

namespace troupe {

/// Calls the function of `what`. Allocates nothing; takes a lock at a thread's first call. Any thread. @pre what.kind is op_kind::user
void call_user_function(const op& what, const void* left, const void* right, void* out, std::size_t count,
                        datatype type);

struct running_function {
  pid_t thread = 0;          ///< as the system numbers threads
  std::uint64_t number = 0;  ///< of the call, in its thread
  op_name name;
  std::size_t count = 0;
  datatype type = datatype::u8;
};

/// Told when a function begins to run while all watchers sleep.
class function_watcher {
public:
  function_watcher();
  virtual ~function_watcher() = default;
  function_watcher(const function_watcher&) = delete;
  function_watcher& operator=(const function_watcher&) = delete;

  /// On the thread that is about to call the function, under a lock: nothing that waits, or makes or ends a watcher.
  virtual void wake() noexcept = 0;

  /// wake() is not called any more. Of the class that derives, first in its destructor. Any thread.
  void retire();
  /// What runs now, in the whole process. Any thread.
  static std::vector<running_function> running();
  /// How many calls there have been, in the whole process. Any thread.
  static std::uint64_t calls();
  /// All watchers sleep from now on. False: something runs, and this one goes on watching. Any thread.
  static bool fall_asleep();

private:
  friend struct function_places;
  function_watcher* next_ = nullptr;  ///< guarded by the lock of all places
};

}  // namespace troupe
