// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "memory/export.hpp"

namespace troupe {

/// The division of a partitioned operation's blocks; the argument of `…_init` that follows the buffers (docs/partitioned.md).
struct partitions {
  /// Part p of a block of c elements is [⌊p·c/count⌋, ⌊(p+1)·c/count⌋). 1 … 1024.
  explicit partitions(int count) : count(count) {}
  /// Parts of these sizes (elements; of ranges: objects), which make up a block. The same on all ranks.
  explicit partitions(std::vector<std::size_t> sizes)
      : count(static_cast<int>(sizes.size())), sizes(std::move(sizes)) {}
  explicit partitions(std::initializer_list<std::size_t> sizes) : partitions(std::vector<std::size_t>(sizes)) {}

  int count;
  std::vector<std::size_t> sizes{};  ///< empty: equal ones
  static constexpr int most = 1024;
};

/// A collective that begins before its input is complete and gives out its output before it is done, described, checked and planned once
/// and started many times, always on the same buffers:
///   auto gather = comm.all_gather_init(rows, matrix, troupe::partitions(64));
///   gather.start();
///   for (int t = 0; t < 64; ++t) { compute_row(t); gather.ready(t); }
///   while (auto part = gather.next_arrived()) use(*part);
///   gather.wait();
/// Offered by all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, reduce, gather and scatter. Every block of the input has k parts; part p
/// of the input is part p of each of the rank's input blocks, which get ready together. The output has k parts a block: output part b·k + p is part p of the
/// b-th block in the rank's output, so for all_gather, gather and all_to_all r·k + p is what part p of rank r becomes, and for the others output part p is
/// what the ranks' parts p become. A rank without input (a leaf of a broadcast) need not make anything ready, one without output gets nothing.
///
/// Between start() and the end the caller writes a part of the input until it has said that it is ready, and reads a part of the output once it
/// has arrived; nothing else. Pieces that have arrived are right, though the operation can still fail (another rank is lost, a deadline passes) in its other parts.
/// A part that never gets ready keeps the operation under way on all ranks: give it a deadline, whose error names the parts that lack.
/// Every start counts as a call of its own, in the order of the rank's other calls; all ranks must call it with the same parts.
///
/// Move-only; one that was never made, or was moved from, throws errc::invalid_argument when it is started or waited for. Must not outlive what it
/// reads and writes. ready() and arrived() may be called by any threads; of the rest one thread at a time.
class TROUPE_API partitioned {
public:
  partitioned();
  partitioned(partitioned&&) noexcept;
  partitioned& operator=(partitioned&&) noexcept;
  /// Cancels an operation under way, waits for its end, and swallows its failure.
  ~partitioned();

  /// Begins the next repetition: nothing is ready and nothing has arrived. Throws errc::invalid_argument while the one before is not done, and
  /// as any start of a call. Cost: that of starting an operation. Where the ranks share memory (one process, or several of a host), a start, when the one
  /// before has ended, allocates nothing, nor do ready(), arrived() and next_arrived(); elsewhere it goes by mailbox, which allocates.
  void start();
  /// This part of the input is complete: it may travel. Throws errc::invalid_argument if there is no such part, if it was ready before, or before start();
  /// after the end of the operation (a failure that this thread has not heard of) it does nothing. Work that can be done at once is
  /// done on this thread.
  void ready(int part);
  /// This part of the output is complete. True also after the end of an operation that succeeded. Throws as ready() for what is no part.
  bool arrived(int part) const;
  /// Waits until a part of the output has arrived that was not given out in this repetition, and gives it out; none: all were. Parts come in the order
  /// of their arrival. Throws error if the operation failed, but first gives out what had arrived.
  std::optional<int> next_arrived();
  /// Calls `callback(part)` whenever that part arrives, in this repetition and in later ones, instead of an earlier callback for it (an empty one takes that back); at once if it has arrived. On
  /// whichever thread brings it; it must be short and must not wait for anything (errc::invalid_argument). An exception of it is logged.
  void then(int part, std::function<void(int)> callback);
  /// Waits for the end. Throws error if the operation failed.
  void wait();
  /// As wait(), without exceptions.
  std::error_code try_wait() noexcept;
  /// Ends the operation with errc::cancelled on every rank that has not performed it yet; returns at once.
  void cancel();
  bool done() const noexcept;

  int input_parts() const noexcept;   ///< k, also at a rank without input
  int output_parts() const noexcept;  ///< k for each block of the rank's output
  /// The plan as explain names it: "ring, protocol simple (1f9a03d2)".
  std::string plan() const;

  explicit operator bool() const noexcept { return what_ != nullptr; }

private:
  friend class communicator;
  friend struct partitioned_access;
  struct prepared;
  explicit partitioned(std::unique_ptr<prepared> what);
  prepared& here() const;
  std::unique_ptr<prepared> what_;
};

}  // namespace troupe
