// SPDX-License-Identifier: Apache-2.0
#pragma once
// What lies in another process's own memory comes to this one by the system (process_vm_readv), or by way of a staging buffer that both map. The system's copy
// costs more than a processor's, for each call and each page. The staging buffer costs a copy more, to lines that its last reader still has. Which is
// less differs from one computer to the next, by a factor of two in either direction, so the first process of a host measures it (time_copies()).

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

namespace troupe {

struct copy_costs {
  double call = 0;     ///< of a copy by the system, ns
  double system = 1;   ///< what such a copy costs more than one by the processor, ns a KiB
  double staging = 0;  ///< a copy to memory that another core has read, ns a KiB
  double past = 0;     ///< the same past the caches (staging_copier.hpp)
  int cores = 1;       ///< of the host's processes
  bool tries = false;  ///< ranks may find out that it is otherwise (staging_trials.hpp); else somebody has decided

  /// A copy past the caches costs its reader about as much more as it costs itself.
  static constexpr double reader_pays = 2;

  static copy_costs never_worth_staging() { return {.call = 0, .system = 0, .staging = 1, .past = 1}; }

  /// What ranks might stage of their inputs for others to read, or of their outputs for others to write.
  struct use {
    std::size_t bytes = 0;  ///< of one copy by the system
    double times = 1;       ///< that each byte passes between two processes
    int stagers = 1;        ///< ranks that would copy to their staging buffers, or from them
    int others = 1;         ///< ranks that read there, or write
    bool folds = false;     ///< what the system has copied is read once more, from the core's cache
    bool is_long = false;   ///< and folded: its lines would come from other caches, or memory, whichever way it goes
    bool beside = false;  ///< who reads has as much to copy while it is staged, or takes what is staged piece by piece
  };
  /// That the copies to the staging buffers take less time than the system's calls. @param ranks that wait for each other
  bool worth_staging(const use& of, int ranks) const {
    const double kilobytes = static_cast<double>(std::max<std::size_t>(1, of.bytes)) / 1024;
    // About what it takes, as all_reduce and reduce of 4 and 8 processes show (docs/hosts.md, "Staging buffers").
    const double again = of.folds ? staging / 3 : 0;
    const double by_system = of.times * (system + again + call / kilobytes);
    // Where ranks share cores, a staging buffer's lines are as often in the cache of the core that writes them.
    const double lines_elsewhere = ranks > cores && cores > 1 ? 1 - 1.0 / cores : 1;
    // Where the two copies take their time side by side, or what is read is long, it matters little that the reader finds in no near cache what was
    // written past them.
    const double least = staging > reader_pays * past ? past : staging;
    const double to_staging = of.beside ? least / 2 : of.is_long ? least : staging;
    const auto at_once = [&](int several) { return static_cast<double>(std::clamp(several, 1, cores)); };
    return to_staging * lines_elsewhere / at_once(of.stagers) < by_system / at_once(of.others);
  }
};

/// Nanoseconds of copies of `measured` bytes, medians; `call`: of 64 bytes.
struct copy_times {
  static constexpr std::size_t measured = 64 * 1024;
  static constexpr double unknown = std::numeric_limits<double>::infinity();
  double to_staging = unknown, from_staging = unknown, by_system = unknown, call = unknown, past_caches = unknown;
};
/// If some are not known, `copy_costs{}`, by which all is staged.
copy_costs costs_of(const copy_times& times, int cores);

/// Of two series the shorter times, each for itself: what else ran meanwhile only made them longer.
copy_times least_of(const copy_times& one, const copy_times& other);
/// By a quarter, in all but `call`, which is short beside the others.
bool agree(const copy_times& one, const copy_times& other);

/// By two threads, in 1.3 ms where both have cores to themselves, two series that agree, or in 2.1, three. In 5 ms at most.
/// @param cpus that the processes of the host use; the calling thread's may be one of them @param cores as in copy_costs
copy_times time_copies(std::span<const int> cpus);

}  // namespace troupe
