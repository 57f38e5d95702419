// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/slots/slot_board.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "actors/waiting/futex.hpp"
#include "memory/error.hpp"
#include "memory/process_barrier.hpp"

namespace troupe {

namespace {

/// Level k holds the lines from 2·8ᵏ to 2·8ᵏ⁺¹ of each half.
constexpr std::size_t level_begin(std::size_t level) { return slot_channel::first_lines << (3 * level); }
constexpr std::size_t level_lines(std::size_t level) { return level_begin(level + 1) - level_begin(level); }
static_assert(level_begin(slot_channel::level_count) == slot_channel::most_lines);

/// How late a sleeper may be whose announcement a writer has missed.
constexpr std::chrono::nanoseconds unsure_nap = std::chrono::milliseconds{1};

[[noreturn]] void no_memory(std::size_t bytes) {
  throw error(errc::out_of_memory,
              "the slots of a channel need " + std::to_string(bytes) +
                  " bytes more, which the system refuses; use fewer ranks or the protocol 'simple'");
}

actors::futex_of whose(const slot_board& board) {
  return board.between_processes() ? actors::futex_of::all_processes : actors::futex_of::this_process;
}

}  // namespace

bool slots_have_membarrier() { return process_barrier_works(barrier_of::this_process); }
bool slots_have_global_membarrier() { return process_barrier_works(barrier_of::all_processes); }

// -- slot_channel -----------------------------------------------------------------------------------------------------

slot_channel::run slot_channel::lines_of_level(unsigned parity, std::size_t index) {
  std::size_t level = 0;
  while (index >= level_begin(level + 1)) ++level;
  slots::word* first = levels_[parity][level].load(std::memory_order_acquire);
  if (first == nullptr) return {};
  const std::size_t at = index - level_begin(level);
  return {first + at * slots::line_words, level_lines(level) - at};
}

std::size_t slot_channel::reserve(std::size_t lines, board_memory& from) {
  std::size_t level = 0;
  for (; level < level_count && level_begin(level) < lines; ++level)
    for (const unsigned parity : {0U, 1U}) {
      relative<slots::word>& at = levels_[parity][level];
      if (at.load(std::memory_order_relaxed) != nullptr) continue;
      const std::size_t bytes = level_lines(level) * slots::line_bytes;
      // One of two is used by the epoch that asks, the other by the next at the earliest.
      auto* const made = static_cast<slots::word*>(parity == 0 ? from.take(bytes) : from.take_for_later(bytes));
      if (made == nullptr) no_memory(bytes);
      if (at.publish(made) != nullptr) from.give_back(made);
    }
  return level_begin(level);
}

/// False: no memory.
bool slot_channel::lay_ring(std::size_t index, std::size_t epochs, std::uint64_t first, board_memory& from) {
  void* const room = from.take(bytes_of_ring(epochs));  // zeros: places that nobody has used
  if (room == nullptr) return false;
  auto* const made = static_cast<ring*>(room);
  made->first = first;
  made->epochs = epochs;
  source_.deep = ring_view{made};
  rings_[index].store(made, std::memory_order_release);
  return true;
}

void slot_channel::deepen(std::uint64_t sequence, board_memory& from) {
  if (!source_.deep.is_laid() && !lay_ring(0, ring_epochs, sequence, from)) no_memory(bytes_of_ring(ring_epochs));
}

bool slot_channel::lengthen(std::uint64_t sequence, board_memory& from) {
  const bool is_full = source_.deep.is_laid() && source_.known < source_.deep.place_of(sequence).used;
  return is_full && std::exchange(source_.may_lengthen, false) && lay_ring(1, long_ring_epochs, sequence, from);
}

std::size_t slot_channel::ring_bytes() const {
  std::size_t bytes = 0;
  for_each_ring([&](const ring_view& laid) { bytes += bytes_of_ring(laid.epochs()); });
  return bytes;
}

std::size_t slot_channel::most_bytes() {
  return sizeof(slot_channel) + bytes_of_ring(ring_epochs) + bytes_of_ring(long_ring_epochs) +
         2 * (most_lines - first_lines) * slots::line_bytes;
}

void slot_channel::begin_generation(std::uint64_t generation) {
  for (const unsigned parity : {0U, 1U}) {
    clear_half(parity, 0, source_.half[parity].written);
    source_.half[parity].foreign = 0;
  }
  for_each_ring([](const ring_view& laid) {
    for (std::size_t c = 0; c < laid.epochs(); ++c) {
      clear_lines(laid.lines(c), first_lines);
      laid.place_of(c).foreign = 0;
    }
    slots::clear(laid.at->short_cells, std::size(laid.at->short_cells));
  });
  source_.generation = generation;
  generation_.store(generation, std::memory_order_release);
}

/// 1 + the last epoch written. Looks at every place: asked for once in a generation.
std::uint64_t slot_channel::last_used() const {
  std::uint64_t last = std::max(source_.half[0].used, source_.half[1].used);
  for_each_ring([&](const ring_view& laid) {
    for (std::size_t c = 0; c < laid.epochs(); ++c) last = std::max(last, laid.place_of(c).used);
  });
  return last;
}

bool slot_channel::prepare(std::uint64_t sequence, std::uint64_t generation, slot_format format, std::uint32_t lines) {
  const unsigned parity = sequence & 1;
  const ring_view& deep = source_.deep;
  place& half = source_.half[parity];
  const bool far = deep.is_laid() && lines > first_lines;  // the cell for the first lines, the half for the others
  if (far && source_.known < half.used) return wait_until(half.used);
  if (generation != source_.generation) {
    if (const std::uint64_t last = last_used(); source_.known < last) return wait_until(last);
    begin_generation(generation);
  }
  const auto lay = [&](place& at, std::uint32_t count, auto clear) {
    if (format == slot_format::ll128) at.foreign = std::max(at.foreign, count);
    else if (at.foreign > 0) clear(std::exchange(at.foreign, 0));
    at.written = std::max(at.written, count);
  };
  // A cell never counts more lines than it has, so that open() comes here whenever the half is needed, too.
  if (deep.is_laid())
    lay(place_of(sequence), std::min<std::uint32_t>(lines, first_lines),
        [&](std::uint32_t foreign) { clear_lines(deep.lines(sequence), foreign); });
  if (!deep.is_laid() || far) {
    lay(half, lines, [&](std::uint32_t foreign) { clear_half(parity, deep.is_laid() ? first_lines : 0, foreign); });
    half.used = sequence + 1;
  }
  return true;
}

void slot_channel::clear_half(unsigned parity, std::size_t from, std::size_t to) {
  for (std::size_t at = from; at < to;) {
    run here =
        at < first_lines ? run{words_[parity] + at * slots::line_words, first_lines - at} : lines_of_level(parity, at);
    const std::size_t count = std::min(here.lines, to - at);
    clear_lines(here.first, count);
    at += count;
  }
}

// -- slot_board -------------------------------------------------------------------------------------------------------

namespace {

/// All who map the board order sleeps alike: as the first one that came has found best.
bool agree(std::atomic<std::uint32_t>& word, bool membarrier) {
  std::uint32_t agreed = 0;
  const std::uint32_t mine = membarrier ? 1 : 2;
  return word.compare_exchange_strong(agreed, mine) ? membarrier : agreed == 1;
}

}  // namespace

slot_board::slot_board(int ranks, std::shared_ptr<board_memory> memory, bool crowded)
    : ranks_(ranks),
      memory_(std::move(memory)),
      membarrier_(memory_->has_membarrier() && agree(*memory_->roots<std::atomic<std::uint32_t>>(1), !crowded)),
      direct_(ranks, *memory_),
      pairs_(ranks, *memory_),
      cores_(ranks, memory_->roots<shared_cores::entry>(static_cast<std::size_t>(ranks))),
      words_(memory_->roots<rank_words>(static_cast<std::size_t>(ranks))),
      channels_(
          memory_->roots<relative<slot_channel>>(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks))) {}

slot_board::~slot_board() = default;

slot_channel& slot_board::make_channel(rank_t source, rank_t destination) {
  return memory_->lay_down<slot_channel>(at(source, destination), no_memory);
}

std::size_t slot_board::bytes() const {
  const auto pairs = static_cast<std::size_t>(ranks_) * static_cast<std::size_t>(ranks_);
  std::size_t total =
      static_cast<std::size_t>(ranks_) * sizeof(rank_words) + pairs * sizeof(channels_[0]) + pairs_.bytes();
  for (std::size_t i = 0; i < pairs; ++i) {
    slot_channel* channel = channels_[i].load(std::memory_order_acquire);
    if (channel == nullptr) continue;
    total += sizeof(slot_channel) + channel->ring_bytes();
    for (std::size_t level = 0; level < slot_channel::level_count; ++level)
      if (channel->lines_to_read(0, level_begin(level)).first != nullptr)
        total += 2 * level_lines(level) * slots::line_bytes;
  }
  return total;
}

std::size_t slot_board::root_bytes(int ranks) {
  if (ranks == 0) return 0;
  const auto n = static_cast<std::size_t>(ranks);
  constexpr std::size_t pieces = 8;  // each begins on a line
  return n * (sizeof(rank_words) + sizeof(shared_cores::entry) + sizeof(direct_board::rank_words) + sizeof(void*)) +
         n * n * sizeof(relative<slot_channel>) + direct_board::common_bytes + pieces * board_memory::alignment;
}

/// Twice what is laid down once: a rank that is too late leaves its own there.
std::size_t slot_board::most_bytes(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return n * (sizeof(rank_words) + sizeof(shared_cores::entry)) + n * n * sizeof(relative<slot_channel>) +
         2 * n * n * slot_channel::most_bytes() + direct_board::most_bytes(ranks) + pair_board::most_bytes(ranks) +
         64 * board_memory::alignment;
}

void slot_board::wake_sleeper(std::uint64_t seen, rank_t writer) {
  const auto wants = static_cast<std::uint32_t>(seen >> 32);
  if (wants != 0 && writer != anybody && wants != static_cast<std::uint32_t>(writer + 1)) return;
  // The words live as long as the board; a wake-up that comes too late costs a look around.
  std::atomic<std::uint32_t>& ticket = words(static_cast<rank_t>(static_cast<std::uint32_t>(seen)) - 1).ticket;
  ticket.fetch_add(1, std::memory_order_acq_rel);
  actors::futex_wake(&ticket, whose(*this));
}

void slot_board::wake(rank_t rank) {
  const std::uint64_t seen = words(rank).sleeping.fetch_or(0, std::memory_order_seq_cst);
  if (seen != 0) wake_sleeper(seen, anybody);
}

bool slot_board::wake_from_messages(rank_t rank) {
  const std::uint64_t seen = words(rank).sleeping.fetch_or(0, std::memory_order_seq_cst);
  if (seen >> 32 != static_cast<std::uint32_t>(no_writer + 1)) return false;
  wake_sleeper(seen, anybody);
  return true;
}

void slot_board::wake_who_want_done(rank_t rank) {
  words(rank).wanted.exchange(0, std::memory_order_acq_rel);
  for (rank_t r = 0; r < ranks_; ++r)
    if (const std::uint64_t seen = looked_at(words(r).sleeping); seen != 0) wake_sleeper(seen, anybody);
}

// -- sleep ------------------------------------------------------------------------------------------------------------

slot_board::sleep::sleep(slot_board& board, rank_t leader)
    : board_(board), leader_(leader), ticket_(board.words(leader).ticket.load(std::memory_order_acquire)) {}

void slot_board::sleep::announce(rank_t rank, rank_t writer) {
  rank_words& mine = board_.words(rank);
  const std::uint64_t value = static_cast<std::uint64_t>(static_cast<std::uint32_t>(writer + 1)) << 32 |
                              static_cast<std::uint32_t>(leader_ + 1);
  mine.next = first_;
  first_ = rank;
  mine.sleeping.exchange(value, std::memory_order_acq_rel);
}

void slot_board::sleep::want_finished(rank_t of, std::uint64_t bound) {
  // The nearest bound of all who sleep counts; a rank that is woken by another one's bound announces its own again.
  std::atomic<std::uint64_t>& wanted = board_.words(of).wanted;
  std::uint64_t before = wanted.fetch_or(0, std::memory_order_acq_rel);
  while (!wanted.compare_exchange_weak(before, before == 0 ? bound : std::min(before, bound),
                                       std::memory_order_acq_rel)) {}
}

void slot_board::sleep::fence() {
  const barrier_of whose = board_.between_processes() ? barrier_of::all_processes : barrier_of::this_process;
  if (board_.membarrier_) {
    if (!process_barrier(whose)) sure_ = false;
    return;
  }
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

void slot_board::sleep::until(std::chrono::steady_clock::time_point deadline) {
  if (!sure_) deadline = std::min(deadline, std::chrono::steady_clock::now() + unsure_nap);
  actors::futex_wait(board_.words(leader_).ticket, ticket_, deadline, whose(board_));
}

void slot_board::sleep::retract() {
  while (first_ >= 0) {
    rank_words& mine = board_.words(first_);
    first_ = mine.next;
    // A read-modify-write: a plain store would cut the chain that S1 of the next sleep reads.
    mine.sleeping.exchange(0, std::memory_order_acq_rel);
  }
}

}  // namespace troupe
