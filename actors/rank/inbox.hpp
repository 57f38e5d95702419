// SPDX-License-Identifier: Apache-2.0
#pragma once
// Words to a rank, until a holder of its turn reads them. Many writers, one reader at a time; lock-free.
//
// A message of one writer stays behind that writer's earlier ones. Messages of different writers come in any order; the protocol
// names every chunk, so it needs no more (channel_state.hpp). What bounds it: chunks and credits by the credits granted, the rest
// by the calls of this rank's own threads and by the operations that the membership ends.

#include <atomic>
#include <functional>
#include <new>
#include <utility>
#include <variant>

#include "actors/rank/operation.hpp"
#include "protocols/chunk.hpp"

namespace troupe::actors {

class rank_outbox;
class rank_state;

/// To the channel of this number.
struct chunk_message {
  int channel = 0;
  chunk what;
};
struct credit_message {
  int channel = 0;
  credit what;
};
/// Whatever comes seldom: control, failure, the end.
using rank_order = std::function<void(rank_state&, rank_outbox&)>;

/// Pieces of a partitioned operation are ready.
using parts_message = std::shared_ptr<operation_parts>;

struct rank_message {
  std::variant<chunk_message, credit_message, operation_ptr, rank_order, parts_message> what;
  rank_message* next = nullptr;
  bool lent = false;  ///< it belongs to the operation_parts that it names, and is in one inbox at a time
};

class inbox {
public:
  inbox() = default;
  ~inbox() {
    for (rank_message* m = take_all(); m != nullptr;) give_back(std::exchange(m, m->next));
  }
  inbox(const inbox&) = delete;
  inbox& operator=(const inbox&) = delete;

  /// Any thread. Throws std::bad_alloc before anything is changed; takes memory that this thread has given back, if there is any.
  template <class What>
  void push(What&& what) {
    add(make(std::forward<What>(what)));
  }
  /// The same of one that is made already.
  void add(rank_message* m) noexcept {
    rank_message* head = head_.load(std::memory_order_relaxed);
    // Sequentially consistent, like what rank_cell does afterwards: see there why no message is overlooked.
    do m->next = head;
    while (!head_.compare_exchange_weak(head, m, std::memory_order_seq_cst, std::memory_order_relaxed));
  }
  bool empty() const noexcept { return head_.load(std::memory_order_seq_cst) == nullptr; }

  /// All messages there are, the oldest first. The reader gives each back.
  rank_message* take_all() noexcept {
    if (head_.load(std::memory_order_seq_cst) == nullptr) return nullptr;
    rank_message* newest = head_.exchange(nullptr, std::memory_order_acquire);
    rank_message* oldest = nullptr;
    while (newest != nullptr) {
      rank_message* const before = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = before;
    }
    return oldest;
  }
  static void give_back(rank_message* m) noexcept {
    if (m->lent) return static_cast<void>(take(*m));
    m->what = chunk_message{};  // lets go of what it held
    store& mine = of_thread();
    if (mine.count == most_stored) return delete m;
    m->next = mine.first;
    mine.first = m;
    ++mine.count;
  }

  /// Returns what a lent message names, which may be all that keeps it. From then on the message may be sent again.
  static parts_message take(rank_message& m) noexcept;

private:
  static constexpr int most_stored = 32;
  /// A thread that reads as many messages as it writes allocates none. More than this kept (3 KiB) is no faster.
  struct store {
    rank_message* first = nullptr;
    int count = 0;
    ~store() {
      while (first != nullptr) delete std::exchange(first, first->next);
    }
  };
  static store& of_thread() noexcept {
    thread_local store mine;
    return mine;
  }
  template <class What>
  static rank_message* make(What&& what) {
    store& mine = of_thread();
    if (mine.first == nullptr) return new rank_message{std::forward<What>(what)};
    rank_message* const m = mine.first;
    mine.first = m->next;
    --mine.count;
    m->what = std::forward<What>(what);
    return m;
  }

  alignas(64) std::atomic<rank_message*> head_{nullptr};
};

}  // namespace troupe::actors
