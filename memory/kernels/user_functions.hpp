// SPDX-License-Identifier: Apache-2.0
#pragma once
// The functions of the program's own that reduce, while they run. Nothing can end one that does not return, but a program that hangs in one should not
// do so without a word: each thread says what it calls, and whoever watches finds what has not returned.
//
// A thread writes its place before and after the call: `number` is odd in between, and another one each time. A watcher that sees one odd number again has
// seen one call last. A watcher sleeps while nothing runs: a thread that begins a call stores its number, then reads whether any watcher sleeps; a watcher
// that falls asleep says so, then reads the numbers (all sequentially consistent): one of them sees the other.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sys/types.h>

#include "memory/types/types.hpp"

namespace troupe {

/// Calls the function of `what`. Takes a lock at a thread's first call, and where a watcher sleeps, which is woken then. A function that is called by another
/// one counts as part of that. Any thread. @pre what.kind is op_kind::user
void call_user_function(const op& what, const void* left, const void* right, void* out, std::size_t count,
                        datatype type);

struct running_function {
  pid_t thread = 0;          ///< as the system numbers threads
  std::uint64_t number = 0;  ///< of the call, in its thread
  op_name name;
  std::size_t count = 0;
  datatype type = datatype::u8;
};

/// Told when a function begins to run while it sleeps.
class function_watcher {
public:
  function_watcher() = default;
  virtual ~function_watcher() = default;
  function_watcher(const function_watcher&) = delete;
  function_watcher& operator=(const function_watcher&) = delete;

  /// It is asleep, and woken at once if something runs. Of the class that derives, last in its constructor.
  void enlist();
  /// wake() is not called any more, and it does not sleep. Of the class that derives, first in its destructor. Any thread.
  void retire();
  /// From now on wake() may be called. False: something runs, and it goes on watching. Any thread.
  bool fall_asleep();
  /// The same, whatever runs: for want of memory. Allocates nothing.
  void fall_asleep_blindly() noexcept;

  /// What runs now, in the whole process. Any thread.
  static std::vector<running_function> running();
  /// How many calls there have been, in the whole process. Any thread.
  static std::uint64_t calls();

protected:
  /// On the thread that is about to call the function, under a lock: nothing that waits, or makes or ends a watcher. False: it could not be woken, and sleeps on.
  virtual bool wake() noexcept = 0;

private:
  friend struct function_places;
  // Guarded by the lock of all places.
  function_watcher* next_ = nullptr;
  bool enlisted_ = false, asleep_ = false;
};

}  // namespace troupe
