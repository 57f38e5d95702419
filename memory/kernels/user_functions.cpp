// SPDX-License-Identifier: Apache-2.0
#include "memory/kernels/user_functions.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <tuple>
#include <utility>

#include <unistd.h>

namespace troupe {

namespace {

/// Where a thread says what it calls. Others read it meanwhile, so all of it is atomic; who has read a word of the next call reads its number, too.
class place {
public:
  place();
  ~place();
  place(const place&) = delete;
  place& operator=(const place&) = delete;

  void begin(const op& what, std::size_t count, datatype type) noexcept {
    const auto words = std::bit_cast<name_words>(what.name);
    for (std::size_t i = 0; i < words.size(); ++i) name_[i].store(words[i], std::memory_order_release);
    count_.store(count, std::memory_order_release);
    type_.store(type, std::memory_order_release);
    number_.store(++mine_);
  }
  void end() noexcept { number_.store(++mine_, std::memory_order_release); }

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
  const pid_t thread_ = ::gettid();
};

}  // namespace

struct function_places {
  std::mutex lock;
  place* places = nullptr;
  std::uint64_t calls_of_ended_threads = 0;
  function_watcher* watchers = nullptr;
  std::atomic<bool> asleep{true};

  template <class T>
  static void take_out(T*& first, T* which, T* T::*next) {
    T** at = &first;
    while (*at != which) at = &((*at)->*next);
    *at = which->*next;
  }
  void add(function_watcher* which) {
    const std::lock_guard held(lock);
    which->next_ = std::exchange(watchers, which);
  }
  void remove(function_watcher* which) {
    const std::lock_guard held(lock);
    take_out(watchers, which, &function_watcher::next_);
    asleep.store(true);  // it may be the one that watched
  }
  void wake_watchers() noexcept {
    const std::lock_guard held(lock);
    if (!asleep.exchange(false)) return;
    for (function_watcher* each = watchers; each != nullptr; each = each->next_) each->wake();
  }
};

namespace {

constinit function_places all;  // needs no destructor that does anything: threads end after it

place::place() {
  const std::lock_guard held(all.lock);
  next = std::exchange(all.places, this);
}

place::~place() {
  const std::lock_guard held(all.lock);
  function_places::take_out(all.places, this, &place::next);
  all.calls_of_ended_threads += calls();
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
  if (all.asleep.load()) [[unlikely]]
    all.wake_watchers();
  what.function(left, right, out, count, type, what.context);
}

function_watcher::function_watcher() { all.add(this); }
void function_watcher::retire() { all.remove(this); }

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

bool function_watcher::fall_asleep() {
  all.asleep.store(true);
  return running().empty() || !all.asleep.exchange(false);
}

}  // namespace troupe
