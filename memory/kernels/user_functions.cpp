// SPDX-License-Identifier: Apache-2.0
#include "memory/kernels/user_functions.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <tuple>
#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace troupe {

namespace {

/// Where a thread says what it calls. Others read it meanwhile, so all of it is atomic; who has read a word of the next call does not read this one's
/// number after it.
class place {
public:
  place();
  ~place();
  place(const place&) = delete;
  place& operator=(const place&) = delete;

  void begin(const op& what, std::size_t count, datatype type) noexcept {
    if (depth_++ != 0) return;
    const auto words = std::bit_cast<name_words>(what.name);
    for (std::size_t i = 0; i < words.size(); ++i) name_[i].store(words[i], std::memory_order_release);
    count_.store(count, std::memory_order_release);
    type_.store(type, std::memory_order_release);
    number_.store(++mine_);
  }
  void end() noexcept {
    if (--depth_ == 0) number_.store(++mine_, std::memory_order_release);
  }
  /// In a child process the thread has another number.
  void renumber() noexcept { thread_ = ::gettid(); }

  /// Number 0: nothing runs, or what runs has just begun or ended.
  running_function look() const noexcept {
    running_function seen;
    const std::uint64_t number = number_.load();
    if (number % 2 == 0) return seen;
    name_words words{};
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = name_[i].load(std::memory_order_acquire);
    seen = {thread_, number, std::bit_cast<op_name>(words), count_.load(std::memory_order_acquire),
            type_.load(std::memory_order_acquire)};
    if (number_.load(std::memory_order_relaxed) != number) seen.number = 0;
    return seen;
  }
  std::uint64_t calls() const noexcept { return (number_.load(std::memory_order_relaxed) + 1) / 2; }

  place* next = nullptr;  ///< guarded by the lock of all places

private:
  using name_words = std::array<std::uint64_t, sizeof(op_name) / sizeof(std::uint64_t)>;
  std::array<std::atomic<std::uint64_t>, std::tuple_size_v<name_words>> name_{};
  std::atomic<std::size_t> count_{0};
  std::atomic<datatype> type_{};
  std::atomic<std::uint64_t> number_{0};
  std::uint64_t mine_ = 0;  ///< the thread's own copy of number_
  int depth_ = 0;           ///< the thread's own: functions that it is in
  pid_t thread_ = ::gettid();
};
thread_local place* my_place = nullptr;

}  // namespace

struct function_places {
  std::mutex lock;
  place* places = nullptr;
  std::uint64_t calls_of_ended_threads = 0;
  function_watcher* watchers = nullptr;
  std::atomic<int> sleeping{0};  ///< watchers; written under the lock

  template <class T>
  static void take_out(T*& first, T* which, T* T::*next) {
    T** at = &first;
    while (*at != nullptr && *at != which) at = &((*at)->*next);
    if (*at != nullptr) *at = which->*next;
  }
  void set_asleep(function_watcher& which, bool on) noexcept {
    if (std::exchange(which.asleep_, on) != on) sleeping.fetch_add(on ? 1 : -1);
  }
  bool anything_runs() const noexcept {
    for (const place* each = places; each != nullptr; each = each->next)
      if (each->look().number != 0) return true;
    return false;
  }
  void wake(function_watcher& which) noexcept {
    if (which.asleep_ && which.wake()) set_asleep(which, false);
  }
  void enlist(function_watcher& which) {
    const std::lock_guard held(lock);
    which.next_ = std::exchange(watchers, &which);
    which.enlisted_ = true;
    set_asleep(which, true);
    if (anything_runs()) wake(which);
  }
  void retire(function_watcher& which) {
    const std::lock_guard held(lock);
    take_out(watchers, &which, &function_watcher::next_);
    which.enlisted_ = false;
    set_asleep(which, false);
  }
  /// @param blindly whatever runs. False: something does
  bool fall_asleep(function_watcher& which, bool blindly) noexcept {
    const std::lock_guard held(lock);
    if (!which.enlisted_) return true;
    set_asleep(which, true);
    if (blindly || !anything_runs()) return true;
    set_asleep(which, false);
    return false;
  }
  void wake_watchers() noexcept {
    const std::lock_guard held(lock);
    for (function_watcher* each = watchers; each != nullptr; each = each->next_) wake(*each);
  }
};

namespace {

constinit function_places all;  // needs no destructor that does anything: threads end after it

/// A child process has one thread, and that thread's place alone.
void keep_places_over_fork() {
  static std::once_flag once;
  std::call_once(once, [] {
    const auto let_go = [] { all.lock.unlock(); };
    ::pthread_atfork([] { all.lock.lock(); }, let_go,
                     [] {
                       all.places = my_place;
                       if (my_place != nullptr) my_place->next = nullptr, my_place->renumber();
                       all.lock.unlock();
                     });
  });
}

place::place() {
  keep_places_over_fork();
  const std::lock_guard held(all.lock);
  next = std::exchange(all.places, this);
  my_place = this;
}

place::~place() {
  const std::lock_guard held(all.lock);
  function_places::take_out(all.places, this, &place::next);
  all.calls_of_ended_threads += calls();
  my_place = nullptr;
}

}  // namespace

void call_user_function(const op& what, const void* left, const void* right, void* out, std::size_t count,
                        datatype type) {
  thread_local place here;
  struct call {
    place& at;
    ~call() { at.end(); }
  };
  here.begin(what, count, type);
  const call under_way{here};
  if (all.sleeping.load() != 0) [[unlikely]]
    all.wake_watchers();
  what.function(left, right, out, count, type, what.context);
}

void function_watcher::enlist() { all.enlist(*this); }
void function_watcher::retire() { all.retire(*this); }
bool function_watcher::fall_asleep() { return all.fall_asleep(*this, false); }
void function_watcher::fall_asleep_blindly() noexcept { all.fall_asleep(*this, true); }

std::vector<running_function> function_watcher::running() {
  std::vector<running_function> found;
  const std::lock_guard held(all.lock);
  for (const place* each = all.places; each != nullptr; each = each->next)
    if (const running_function seen = each->look(); seen.number != 0) found.push_back(seen);
  return found;
}

std::uint64_t function_watcher::calls() {
  const std::lock_guard held(all.lock);
  std::uint64_t sum = all.calls_of_ended_threads;
  for (const place* each = all.places; each != nullptr; each = each->next) sum += each->calls();
  return sum;
}

}  // namespace troupe
