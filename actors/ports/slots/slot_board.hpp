// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of the slot port: one board a communicator, through which ranks of a process, or of several that map it (host_segment.hpp), write
// small messages straight to each other (formats: slot_formats.hpp).
//
// Per ordered pair (source → destination) a *channel* with two halves, used by epochs of even and odd number. In each half the
// messages of an epoch lie one behind the other at places that both ends compute from their programs. Invariants:
//   1. A rank performs its operations on the board one after the other, in the order of their sequence numbers; numbers may be left
//      out. One thread at a time acts for a rank.
//   2. A source writes a half for epoch e only if the destination has finished the epoch that used this half last. It knows from a
//      message of the destination's next epoch (then nothing more is read), else from the destination's word `done`.
//      A source that may run ahead (rooted operations that nobody waits for) lays down a *ring* beside the halves: from its first epoch
//      on, the first two lines of an epoch lie in a cell of the ring, and only longer messages use the halves. What holds for halves
//      holds for cells. The reader finds the ring as it finds lines that were laid down meanwhile: by looking again. Where ranks share
//      cores, a source that has filled the ring lays down a longer one, once, and goes on there, so that threads change less often: both
//      ends use a ring from its first epoch on, and the one before it no more.
//      A short message that is the only one of its epoch, of a source that runs ahead and has sent in the epoch before, too, lies in a
//      *short cell* of the epoch instead, of which several share a cache line: what a root has written while its reader was at work
//      then travels at once. Both ends know from what they sent and saw last where it lies; a reader that waits looks at the other
//      places now and then, so that it finds what another call's source has written, or one that knows more than it does.
//   3. What a reader compares with a stamp is always a stamp: the first word of a line is one in either format; the others
//      are cleared before an LL message follows LL128 messages in a half, and before the header says that they may be read.
//   4. Stamps repeat after 2³² − 2 epochs (a *generation*). The source clears a channel before its first message of a generation and
//      then publishes the generation; a destination reads a channel only if it has the generation that it expects.
//
// Memory is laid down on demand and never moved, so no reader can hold a stale address: the first two lines of a half in the channel
// itself, longer messages in levels of eight times the size. 896 bytes a channel, 12.1 KiB a ring, 36.1 a long one; 8 bytes for every pair that never spoke.
//
// Sleeping. A waiting thread may sleep; a rank that writes to it afterwards looks at its word `sleeping` and wakes it. No
// wake-up is lost:
//   sleeper   S1 store `sleeping`   S2 membarrier   S3 look at its slots again   S4 sleep unless the ticket has changed since before S1
//   writer    W1 store slots        W2 compiler barrier   W3 load `sleeping`; if set: change the ticket, wake
// membarrier(PRIVATE_EXPEDITED) makes every thread of the process that is running execute a full barrier between S1 and S3; one that
// is not running has executed one when it was taken off its core. Between processes it is GLOBAL_EXPEDITED, for which all of them have
// registered. For a given writer that barrier falls before W3, and then W3 sees S1 and the writer wakes the sleeper (S4 does not sleep if
// the ticket has changed already); or it falls behind W3, hence behind W1, and S3 sees the slots. So the price is paid by the one who is
// going to sleep anyway, and a writer pays one load.
// Each barrier interrupts the other cores, so where many ranks share them it is a rank that others wait for which pays. Boards between more
// processes than cores do without, so do those of one process with eight ranks a core or more, and all where the system has no membarrier:
// S2 and W2 are full fences of the two threads themselves. Either S3 sees the slots, or W3 sees `sleeping`.
// ThreadSanitizer knows neither; for it S1 and W3 are read-modify-writes of `sleeping`: they come in one order, and the later one sees
// the earlier one and all that was before it.
// A rank that sleeps until a message of the pair board has moved (ports/pairs) needs no S2: there W3 is such a read-modify-write everywhere, since its writer
// looks at `sleeping` only when the other end has gone away.
// Where S2 fails (a system call filter that was set after the process had registered for membarrier), a wake-up may be lost. Boards
// that are made from then on do without; a sleep on this board is cut into naps.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "actors/ports/direct/direct_board.hpp"
#include "actors/ports/pairs/pair_board.hpp"
#include "actors/ports/segment/board_memory.hpp"
#include "actors/ports/segment/relative.hpp"
#include "actors/waiting/shared_cores.hpp"
#include "protocols/collective.hpp"
#include "protocols/program/slot_formats.hpp"

namespace troupe {

class slot_channel {
public:
  static constexpr std::size_t first_lines = 2;  ///< of a half, or of a cell of the ring
  static constexpr std::size_t level_count = 4;  ///< further levels end at 16, 128, 1024, 8192 lines
  static constexpr std::size_t most_lines = slots::most_lines;
  static constexpr std::size_t ring_epochs = 32;  ///< how far a source may run ahead
  /// The same where ranks share cores; and the operation behind most_ahead others, which waits for everybody, finds room, too.
  static constexpr std::size_t long_ring_epochs = 128;
  static constexpr std::size_t asked_ahead = 2;  ///< it asks for a line so many epochs before it writes there
  static constexpr std::size_t short_bytes = 8;  ///< that fit into a short cell

  slot_channel() = default;
  slot_channel(const slot_channel&) = delete;
  slot_channel& operator=(const slot_channel&) = delete;

  /// A line of an epoch and how many follow it without a gap.
  struct run {
    slots::word* first = nullptr;
    std::size_t lines = 0;
  };
  /// For the source. @pre index < most_lines, reserved, is_open(sequence)
  run lines_to_write(std::uint64_t sequence, std::size_t index) {
    if (index >= first_lines) [[unlikely]]
      return lines_of_level(sequence & 1, index);
    slots::word* const first = source_.deep.is_laid() ? source_.deep.lines(sequence) : words_[sequence & 1];
    return {first + index * slots::line_words, first_lines - index};
  }
  /// For the destination: {nullptr, 0} while the source has not laid it down. Until it has found the ring (look_for_ring()) it looks
  /// at a half or a shorter ring, where no stamp of this epoch ever comes. @pre index < most_lines
  run lines_to_read(std::uint64_t sequence, std::size_t index) {
    if (index >= first_lines) [[unlikely]]
      return lines_of_level(sequence & 1, index);
    slots::word* const first = destination_.deep.is_laid() ? destination_.deep.lines(sequence) : words_[sequence & 1];
    return {first + index * slots::line_words, first_lines - index};
  }
  /// Where the only message of an epoch begins, of a source that runs ahead. @pre as lines_to_write()
  slots::word* message_to_write(std::uint64_t sequence, std::size_t bytes) {
    return writes_short(sequence, bytes) ? source_.deep.short_cell(sequence) : lines_to_write(sequence, 0).first;
  }
  /// Where the destination expects it.
  slots::word* message_to_read(std::uint64_t sequence, std::size_t bytes) {
    if (bytes <= short_bytes && destination_.seen + 1 == sequence && sequence > destination_.ring_from)
      return destination_.deep.short_cell(sequence);
    return lines_to_read(sequence, 0).first;
  }
  /// Wherever the first message of the epoch with this stamp has come to; nullptr: nowhere.
  const slots::word* first_message(std::uint64_t sequence, std::uint32_t stamp) {
    const auto here = [stamp](const slots::word* at) {
      return slots::stamp_in(slots::load(at, std::memory_order_acquire)) == stamp;
    };
    if (const slots::word* const at = lines_to_read(sequence, 0).first; here(at)) return at;
    if (!destination_.deep.is_laid()) return nullptr;
    const slots::word* const at = destination_.deep.short_cell(sequence);
    return here(at) ? at : nullptr;
  }
  /// The destination has not found the message where it looked. True: it knows another place now. So what has come is found without a
  /// look at the line that both ends share.
  bool look_for_ring(std::uint64_t sequence) {
    if (destination_.rings == ring_count) return false;
    ring* const laid = rings_[destination_.rings].load(std::memory_order_acquire);
    if (laid == nullptr || sequence < laid->first) [[likely]]
      return false;
    ++destination_.rings;
    destination_.deep = ring_view{laid};
    destination_.ring_from = laid->first;
    return true;
  }

  /// Lays down the levels for `lines` lines a half; returns for how many there is room then. Any thread. Throws error(out_of_memory).
  std::size_t reserve(std::size_t lines, board_memory& from);
  /// The source, before it writes anything of `sequence`: lays down the ring, if there is none. Throws error(out_of_memory).
  void deepen(std::uint64_t sequence, board_memory& from);
  /// The source, after open() has failed, if it runs ahead: the same with a long ring, if its ring is full. Tries once in a channel's life. False: there
  /// is none, or it was there already.
  bool lengthen(std::uint64_t sequence, board_memory& from);

  /// The source is about to write in `sequence` for the first time. False: the destination has not finished with the place yet;
  /// `known` may then be too old. @pre reserved for `lines`
  bool open(std::uint64_t sequence, std::uint64_t generation, slot_format format, std::uint32_t lines) {
    place& mine = place_of(sequence);
    if (source_.known < mine.used || source_.known < source_.enough) [[unlikely]]
      return false;
    // As LL128 before, no longer than ever: nothing to clear.
    if (generation != source_.generation || format != slot_format::ll128 || lines > mine.foreign) [[unlikely]]
      if (!prepare(sequence, generation, format, lines)) return false;
    mine.used = sequence + 1;
    return true;
  }
  /// The source has opened `sequence` and runs ahead: it asks for the line that a message of so many bytes takes some epochs later, if
  /// the destination has read it. It lies in that one's cache; without this the next call's first read-modify-write would wait for it.
  /// @param only the message is its epoch's only one, and an LL128 line: it may lie in a short cell
  void ask_ahead(std::uint64_t sequence, std::size_t bytes, bool only) {
    if (!source_.deep.is_laid()) return;
    const bool is_short = only && writes_short(sequence, bytes);
    const std::uint64_t later = sequence + (is_short ? cells_a_line : asked_ahead);
    if (source_.deep.place_of(later).used > source_.known) return;
    if (is_short) return slots::ask_for_half(source_.deep.short_cell(later));
    const slots::word* const line = source_.deep.lines(later);
    slots::ask_for_half(line);
    if (bytes > slots::half_payload) slots::ask_for_half(line + slots::line_words / 2);
  }
  bool is_open(std::uint64_t sequence) { return place_of(sequence).used == sequence + 1; }
  /// The source has heard that the destination finished all epochs before `bound`.
  void learn(std::uint64_t bound) {
    if (bound > source_.known) source_.known = bound;
  }
  /// open() has failed although the source has just learned what the destination has finished. A rank that runs ahead then waits for half a ring,
  /// so that the two ends change turns once in many epochs. The destination needs nothing of this rank for that: all that this rank has to
  /// say of those epochs is written.
  void found_full(std::uint64_t sequence) {
    if (const std::uint64_t used = place_of(sequence).used; source_.deep.is_laid() && source_.known < used)
      source_.enough = used + source_.deep.epochs() / 2;
  }
  /// After open() has failed: it is worth another look when the destination has finished all epochs before this one.
  std::uint64_t wanted(std::uint64_t sequence) { return std::max(place_of(sequence).used, source_.enough); }

  /// The destination may compare stamps of this generation. Remembers the answer.
  bool readable(std::uint64_t generation) {
    if (destination_.generation == generation) [[likely]]
      return true;
    if (generation_.load(std::memory_order_acquire) < generation) return false;
    destination_.generation = generation;
    return true;
  }
  /// The destination has seen a message of this epoch: its source finished all epochs before.
  void saw(std::uint64_t sequence) { destination_.seen = sequence; }
  std::uint64_t seen() const { return destination_.seen; }
  /// For reports; the second one: with all that it may ever lay down.
  std::size_t ring_bytes() const;
  static std::size_t most_bytes();

private:
  static constexpr std::size_t ring_count = 2;   ///< the short one and the long one
  static constexpr std::size_t short_words = 2;  ///< of a short cell, with its stamp
  static constexpr std::size_t cells_a_line = 64 / (short_words * sizeof(slots::word));

  /// Where an epoch's lines lie, as its source uses it.
  struct place {
    std::uint64_t used = 0;     ///< 1 + the epoch that used it last; 0: none
    std::uint32_t foreign = 0;  ///< lines whose words other than the first may hold LL128 data
    std::uint32_t written = 0;  ///< lines ever written
  };
  /// Behind it lie as many cells as it has epochs, a power of two. What takes little room lies in it, in either ring as much as in a long one: so it
  /// begins at the same distance in both.
  struct alignas(128) ring {
    std::uint64_t first = 0;  ///< epochs from here on lie in this ring
    std::uint64_t epochs = 0;
    place places[long_ring_epochs];
    alignas(128) slots::word short_cells[long_ring_epochs * short_words] = {};
  };
  static constexpr std::size_t cell_words = first_lines * slots::line_words;
  static constexpr std::size_t bytes_of_ring(std::size_t epochs) {
    return sizeof(ring) + epochs * cell_words * sizeof(slots::word);
  }
  /// A ring as one end uses it.
  struct ring_view {
    ring* at = nullptr;      ///< nullptr: none has been laid down
    std::uint64_t mask = 0;  ///< epochs − 1

    ring_view() = default;
    explicit ring_view(ring* of) : at(of), mask(of->epochs - 1) {}
    bool is_laid() const { return at != nullptr; }
    std::size_t epochs() const { return mask + 1; }
    slots::word* lines(std::uint64_t sequence) const {
      return reinterpret_cast<slots::word*>(at + 1) + (sequence & mask) * cell_words;
    }
    slots::word* short_cell(std::uint64_t sequence) const { return at->short_cells + (sequence & mask) * short_words; }
    place& place_of(std::uint64_t sequence) const { return at->places[sequence & mask]; }
  };

  /// The source has sent in the epoch before, too. @pre the message is its epoch's only one
  bool writes_short(std::uint64_t sequence, std::size_t bytes) const {
    const ring_view& deep = source_.deep;
    return bytes <= short_bytes && deep.is_laid() && sequence > 0 && deep.place_of(sequence - 1).used == sequence;
  }
  place& place_of(std::uint64_t sequence) {
    return source_.deep.is_laid() ? source_.deep.place_of(sequence) : source_.half[sequence & 1];
  }
  run lines_of_level(unsigned parity, std::size_t index);
  bool wait_until(std::uint64_t known) {
    source_.enough = known;
    return false;
  }
  bool lay_ring(std::size_t index, std::size_t epochs, std::uint64_t first, board_memory& from);
  template <class Action>
  void for_each_ring(Action action) const {
    for (const relative<ring>& at : rings_)
      if (ring* const laid = at.load(std::memory_order_acquire); laid != nullptr) action(ring_view{laid});
  }
  std::uint64_t last_used() const;
  bool prepare(std::uint64_t sequence, std::uint64_t generation, slot_format format, std::uint32_t lines);
  void begin_generation(std::uint64_t generation);
  void clear_half(unsigned parity, std::size_t from, std::size_t to);
  static void clear_lines(slots::word* first, std::size_t lines) { slots::clear(first, lines * slots::line_words); }

  // Each end's own words, addresses in its process among them, on lines of their own; pairs of lines, since processors fetch the neighbour too.
  struct alignas(128) {
    std::uint64_t known = 0;   ///< all epochs < known are finished at the destination
    std::uint64_t enough = 0;  ///< who found the ring full goes on when half of it is free
    std::uint64_t generation = 0;
    ring_view deep;  ///< the last of rings_
    place half[2];
    bool may_lengthen = true;  ///< has not tried yet
  } source_;
  struct alignas(128) {
    std::uint64_t seen = 0;
    std::uint64_t generation = 0;
    std::size_t rings = 0;                        ///< found
    ring_view deep;                               ///< the last of them
    std::uint64_t ring_from = ~std::uint64_t{0};  ///< its first epoch
  } destination_;
  // Read by both, written hardly ever.
  alignas(128) relative<slots::word> levels_[2][level_count];  ///< of each half
  relative<ring> rings_[ring_count];
  std::atomic<std::uint64_t> generation_{0};
  alignas(128) slots::word words_[2][first_lines * slots::line_words] = {};
};

/// Whether the two ends of a sleep can be ordered by the sleeper alone; for the process, and until a membarrier has failed.
bool slots_have_membarrier();
/// The same between processes. From then on this one executes the barriers of others.
bool slots_have_global_membarrier();

class slot_board {
public:
  /// Of one process. @param membarrier see heap_memory. Throws error(out_of_memory), as the next.
  explicit slot_board(int ranks, bool membarrier = true)
      : slot_board(ranks, std::make_shared<heap_memory>(membarrier)) {}
  /// The view that a process has of the board in this memory. @param crowded more ranks of the host than cores; the first process decides
  slot_board(int ranks, std::shared_ptr<board_memory> memory, bool crowded = false);
  ~slot_board();
  slot_board(const slot_board&) = delete;
  slot_board& operator=(const slot_board&) = delete;

  int ranks() const { return ranks_; }
  /// Lays it down at first use. Any thread. Throws error(out_of_memory).
  slot_channel& channel(rank_t source, rank_t destination) {
    slot_channel* found = at(source, destination).load(std::memory_order_acquire);
    return found != nullptr ? *found : make_channel(source, destination);
  }
  board_memory& memory() { return *memory_; }
  /// The ranks are in several processes, so that one knows nothing of another's addresses.
  bool between_processes() const { return memory_->between_processes(); }
  /// Where the same ranks meet to work on each other's buffers; they share the numbers, `done` and the sleep.
  direct_board& direct() { return direct_; }
  /// Where they send to each other, each pair for itself.
  pair_board& pairs() { return pairs_; }
  /// Where the ranks' own threads were when they called last.
  shared_cores& cores() { return cores_; }
  /// Bytes of memory laid down so far, for reports.
  std::size_t bytes() const;
  /// The approximate bytes that its roots take; 0 of no ranks.
  static std::size_t root_bytes(int ranks);
  /// The most that a board of so many ranks may ever lay down.
  static std::size_t most_bytes(int ranks);

  // -- epochs ---------------------------------------------------------------------------------------------------------

  /// All epochs before this one are finished at `rank`.
  std::uint64_t done(rank_t rank) const { return words(rank).done.load(std::memory_order_acquire); }
  /// The rank reads no slot of `sequence` any more.
  void finish(rank_t rank, std::uint64_t sequence) {
    rank_words& mine = words(rank);
    mine.done.store(sequence + 1, std::memory_order_release);
    if (const std::uint64_t bound = looked_at(mine.wanted); bound != 0 && sequence + 1 >= bound) [[unlikely]]
      wake_who_want_done(rank);
  }

  // -- sleeping -------------------------------------------------------------------------------------------------------

  /// After a writer's stores to `rank`: wakes it if it sleeps and waits for `writer`. Costs a load. True: it slept.
  bool notify(rank_t rank, rank_t writer) {
    const std::uint64_t seen = looked_at(words(rank).sleeping);
    if (seen != 0) [[unlikely]]
      wake_sleeper(seen, writer);
    return seen != 0;
  }
  /// Wakes the threads that sleep for `rank`, whatever for, and makes it look at its reasons to stop again. They see what was stored before.
  void wake(rank_t rank);
  /// The same, if it sleeps until a message of the pair board has moved, for which no slot is written (announced for `no_writer`). False: it does not. If
  /// it is about to, it sees what was stored before this.
  bool wake_from_messages(rank_t rank);

  static constexpr rank_t anybody = -1;
  static constexpr rank_t no_writer = -2;
  /// One thread's sleep for one or more ranks; the first rank's ticket is what it sleeps on. In this order:
  ///   sleep s{board, leader}; s.announce(rank, writer) …; s.fence(); look again; s.until(deadline) or not
  /// Without s.fence() for `no_writer`.
  /// The destructor takes the announcements back. @pre no other thread sleeps for these ranks.
  class sleep {
  public:
    sleep(slot_board& board, rank_t leader);
    ~sleep() { retract(); }
    sleep(const sleep&) = delete;
    sleep& operator=(const sleep&) = delete;
    /// Be woken by messages to `rank` from `writer` only, from anybody, or from no writer of slots. Once for each rank.
    void announce(rank_t rank, rank_t writer);
    /// Be woken when `done` of `of` has reached `bound`, too. @pre something was announced
    void want_finished(rank_t of, std::uint64_t bound = 1);
    void fence();
    /// Somebody has woken the leader since the constructor.
    bool woken() const { return board_.words(leader_).ticket.load(std::memory_order_acquire) != ticket_; }
    /// Returns at once if woken(). May return without a reason.
    void until(std::chrono::steady_clock::time_point deadline);

  private:
    void retract();
    slot_board& board_;
    rank_t leader_;
    std::uint32_t ticket_;
    rank_t first_ = -1;  ///< announced ranks, linked through rank_words::next
    bool sure_ = true;   ///< writers that do not see the announcement have been seen
  };

  bool uses_membarrier() const { return membarrier_; }
  /// See slots::tear_hook. Set before any rank performs.
  void tear_writes(slots::tear_hook hook) { tear_ = hook; }
  slots::tear_hook tearing() const { return tear_; }

private:
  struct alignas(128) rank_words {
    std::atomic<std::uint64_t> done{0};
    /// Somebody sleeps until `done` has reached this; 0: nobody. Looked at by a thread that has just changed it.
    std::atomic<std::uint64_t> wanted{0};
    // Another line: read by every writer, written only by a thread that goes to sleep.
    alignas(64) std::atomic<std::uint64_t> sleeping{
        0};                                ///< leader + 1, and above it writer + 1 (0: anybody; all ones: none)
    std::atomic<std::uint32_t> ticket{0};  ///< changes with every wake-up; what a leader sleeps on
    rank_t next = 0;                       ///< belongs to the sleeper
  };

  relative<slot_channel>& at(rank_t source, rank_t destination) const {
    return channels_[static_cast<std::size_t>(source) * static_cast<std::size_t>(ranks_) +
                     static_cast<std::size_t>(destination)];
  }
  rank_words& words(rank_t rank) const { return words_[rank]; }
  slot_channel& make_channel(rank_t source, rank_t destination);
  /// W2 and W3.
  std::uint64_t looked_at(std::atomic<std::uint64_t>& word) const {
    if (membarrier_) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return word.load(std::memory_order_relaxed);
    }
#if defined(__SANITIZE_THREAD__)
    return word.fetch_or(0, std::memory_order_acq_rel);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return word.load(std::memory_order_relaxed);
#endif
  }
  void wake_sleeper(std::uint64_t seen, rank_t writer);
  void wake_who_want_done(rank_t rank);

  int ranks_;
  std::shared_ptr<board_memory> memory_;
  bool membarrier_;
  slots::tear_hook tear_ = nullptr;
  direct_board direct_;
  pair_board pairs_;
  shared_cores cores_;
  rank_words* words_;
  relative<slot_channel>* channels_;
};

}  // namespace troupe
