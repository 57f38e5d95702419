// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether `offload = "auto"` gives a call to the NIC, which one thread performs. A pure function of what is known before the call, and is alike
// on all its ranks: costs that the job has agreed on, and cores that its roster shows.
//
// A NIC is no faster than the ranks: it does alone what they do together. It pays by what it leaves to those who compute meanwhile, so what is
// compared is the time that a call takes from each of them.
//  - They perform it themselves: as long as it takes.
//  - A core is free for the NIC's thread: to post the call, to wake the thread, and to see the end. That the NIC itself is hidden is assumed: who
//    starts a call and has nothing to compute could wait in it (as IMB-NBC, which computes for as long as the operation takes).
//  - None is free: the same, for each of the ranks of a core, and all that the thread does, which the system takes from all cores alike; and it
//    begins only when it has got one of them.

#include <string>

namespace troupe {

/// Seconds.
struct offload_figures {
  bool started = true;    ///< its caller goes on
  double callers = 0;     ///< until the ranks have performed it themselves; infinite: they cannot
  double nic = 0;         ///< of the NIC's thread
  double posting = 0;     ///< of each caller, with the look at what is done
  double waking = 0;      ///< of the one who posts last
  double awake = 0;       ///< until a thread that was woken runs
  int ranks_of_host = 1;  ///< of the host that has most
  int cores = 1;          ///< of a host
  int idle_cores = 0;     ///< of them: that no rank of the job uses
  int nics = 1;           ///< threads that need one: each host has its own, and hosts may be parts of one computer
};

struct offload_verdict {
  bool pays = false;
  double taken = 0;  ///< of each caller's time, if the NIC performs
  std::string why;   ///< the end of a sentence, with the figures
};

offload_verdict weigh_offload(const offload_figures& f);

}  // namespace troupe
