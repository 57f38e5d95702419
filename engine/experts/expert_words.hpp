// SPDX-License-Identifier: Apache-2.0
#pragma once
// Words between single ranks of an exchange, where a dispatch starts early, and blocks of bytes between servers. Each pair of ranks
// has an order of its own, so a word comes however late other ranks are; and all that is under way ends together.
//
// The *end* is a partitioned all_gather that begins with the dispatch. A rank votes when it needs nothing any more of anybody, so once the end
// has come well, nobody reads what another one has shown. A deadline, a cancel, a lost rank or an error of one rank ends it on all ranks, also on those that
// have not begun; a rank that hears of that gives up the messages that it waits for.
//
// It has a communicator of its own, so that calls of the exchange's communicator may come between, in any order. A revoke or abort of that one ends this
// one, too (communicator_state::takes_along).

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/waiting/completion.hpp"
#include "engine/api/communicator.hpp"

namespace troupe {

struct expert_word {
  enum class kind : std::uint32_t {
    shown,  ///< the tokens of `source` can be read at the sender; between servers: a block of `bytes` with them comes next, if that is not 0
    refused,  ///< the same, of a rank that has refused its call
    results   ///< the results of the tokens of `source` can be read at the sender
  };
  kind what;
  std::uint32_t source;
  std::uint64_t bytes;
  std::uint64_t tiles = 0;  ///< of `shown` and `refused`: of the node of a flow whose dispatch it is; 0: of none

  static constexpr std::uint64_t back = std::uint64_t{1} << 63;  ///< in `tiles`: the node is one of gradients
};

/// Owner: one rank's exchange, which calls it from one thread at a time; cancel() may be called by any.
class expert_words {
public:
  /// @param lane which nobody else uses
  explicit expert_words(communicator lane);
  ~expert_words() { give_up(); }
  expert_words(const expert_words&) = delete;
  expert_words& operator=(const expert_words&) = delete;

  /// The next dispatch. Throws what its end does, if it has failed already. @pre the last one has ended
  /// @param deadline of all of it; empty: none
  void begin(std::optional<std::chrono::nanoseconds> deadline);
  void send(rank_t to, const expert_word& what);
  /// @param from lies there until the end
  void send_block(rank_t to, const std::byte* from, std::size_t bytes);
  /// The next message of that rank is a word, or a block of so many bytes. @pre none is awaited from it
  void await(rank_t from);
  void await_block(rank_t from, std::byte* into, std::size_t bytes);
  bool awaits(rank_t from) const { return awaited_[static_cast<std::size_t>(from)].pending; }

  /// A message that has come and was not taken yet. Throws error: the end has failed.
  struct arrival {
    rank_t from;
    const expert_word* what;  ///< null: a block
  };
  std::optional<arrival> next();
  /// Waits until next() may have something, or the end has come. @pre next() had nothing
  void sleep();

  void vote();
  bool voted() const { return voted_; }
  bool under_way() const { return begun_ && !over_; }
  /// Waits for the end. Throws error: it has failed. @pre voted()
  void wait();
  /// Ends what is under way for this reason, on all ranks. Any thread. @param why null: cancelled
  void cancel(const failure_ptr& why = nullptr);
  /// Ends it so for this reason, unless this rank has voted; afterwards nobody touches this rank's buffers any more. @param why null: cancelled
  void give_up(const failure_ptr& why = nullptr) noexcept;

private:
  using raw_word = std::array<std::uint64_t, 3>;
  struct awaited {
    bool pending = false, is_word = true;
    request how;
    raw_word raw{};
    expert_word what{};
  };
  /// Rung by whatever ends, on whatever thread.
  struct bell {
    std::atomic<std::uint64_t> rings{0};
    std::atomic<bool> listens{false};
    actors::completion news;
    void ring() noexcept {
      rings.fetch_add(1);
      if (listens.exchange(false)) news.complete(nullptr);
    }
  };
  void begin_receive(awaited& into, rank_t from, void* to, std::size_t count, datatype type);
  void keep_sending(rank_t to, const void* from, std::size_t count, datatype type);
  void check_end();
  [[noreturn]] void fail(const request& with);

  communicator lane_;
  const std::shared_ptr<bell> bell_ = std::make_shared<bell>();
  std::uint64_t heard_ = 0;       ///< rings before the last look
  std::vector<awaited> awaited_;  ///< by rank
  std::size_t looked_at_ = 0;
  std::deque<raw_word> words_;  ///< that are sent
  std::vector<request> sent_;
  std::vector<std::uint8_t> votes_;
  partitioned end_;
  std::optional<std::chrono::nanoseconds> deadline_;  ///< of end_
  std::mutex ending_;                                 ///< end_ is not begun anew while another thread cancels it
  bool begun_ = false, voted_ = false, over_ = false;
};

}  // namespace troupe
