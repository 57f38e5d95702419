# SPDX-License-Identifier: Apache-2.0
"""Row 35 of the target table: collectives that are started, computed beside, and waited for, by the method of IMB-NBC (harness/nbc.hpp).

Each round runs every contender once over all points, beginning with another one each time; a number is the median over the rounds."""

import os
import statistics

from contenders import Failed, mpi_programs
from extras import run_program
from tables import human

SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20]
COLLECTIVES = ["all_reduce", "broadcast", "all_to_all"]
OVERLAP_TARGET = 0.9
FREE_CORE = "troupe, one thread of two ranks, offload always"
PROCESSES = "troupe, processes with shared memory, offload auto"


def contenders(programs, ranks):
    """name: (command, which takes seconds and points)"""
    ours, launch = os.path.join(programs, "nbc"), [os.path.join(programs, "../../troupe"), "launch", "-n", str(ranks), "--no-prefix"]
    found = {f"troupe, offload {how}": [ours, how, str(ranks)] for how in ("never", "auto")}
    found.update({f"troupe, {who}, offload auto": [*launch, ours, "auto", memory]
                  for who, memory in (("processes", "join"), ("processes with shared memory", "shared"))})
    if ranks == 2:
        found[FREE_CORE] = [ours, "always", "1x2"]
    found.update(mpi_programs(programs, "nbc", ranks))
    return found


def measure(options, programs):
    rounds, seconds = (2, "0.05") if options.quick else (7, "0.15")
    sizes = options.sizes or (SIZES[:3] if options.quick else SIZES)
    kinds = [c for c in COLLECTIVES if c in options.collectives] if options.collectives_given else COLLECTIVES
    points = [f"{c}:{s}" for c in kinds for s in sizes]
    samples = {}
    for ranks in options.ranks if options.ranks_given else (2,):
        all_of_them = list(contenders(programs, ranks).items())
        for turn in range(rounds):
            for k in range(len(all_of_them)):
                name, command = all_of_them[(turn + k) % len(all_of_them)]
                for p in run_program([*command, seconds, *points], 300):
                    samples.setdefault((name, ranks, p["collective"], p["bytes"]), []).append(p)
    if not samples:
        raise Failed("no point of row 35 was asked for")
    numbers = ("t_pure_us", "t_cpu_us", "t_both_us", "overlap", "begin_cpu_us", "wait_cpu_us")
    return [{"contender": name, "ranks": ranks, "collective": what, "bytes": size, "wrong": max(r["wrong"] for r in runs),
             **{key: statistics.median(r[key] for r in runs) for key in numbers}, "overlap_all": [r["overlap"] for r in runs]}
            for (name, ranks, what, size), runs in samples.items()]


def judge(found, verdict_of):
    """Total time beside both peers, where no core is free; the overlap where one thread begins and waits for both ranks, so that the NIC has a core."""
    of = {(p["contender"], p["ranks"], p["collective"], p["bytes"]): p for p in found}
    verdicts = []
    for who, ours in (("threads", "troupe, offload auto"), ("processes", PROCESSES)):
        ratios = [(p["t_both_us"] / of[(peer, *key)]["t_both_us"], f"{key[1]} {human(key[2])}, {key[0]} ranks, {peer}")
                  for (name, *key), p in of.items() if name == ours
                  for peer in ("openmpi", "mpich") if (peer, *key) in of]
        if ratios:
            verdicts.append(verdict_of(35, f"begin, compute as long as it takes alone, wait: {who}, offload auto / MPI", "each ≤ 1", 1, ratios))
    posts = [((p["begin_cpu_us"] + p["wait_cpu_us"]) / 2, f"{p['collective']} {human(p['bytes'])}, {p['ranks']} ranks")
             for p in found if p["contender"] == "troupe, offload auto" and p["bytes"] >= SIZES[2]]  # below, auto gives the NIC nothing
    if posts:
        verdicts.append(verdict_of(35, "a thread a rank: CPU time of begin and wait, µs / 2", "each ≤ 2 µs", 1, posts))
    free = [(key, p) for (name, *key), p in of.items() if name == FREE_CORE]
    if free:
        where = lambda key: f"{key[1]} {human(key[2])}"
        verdicts.append(verdict_of(35, "a core free for the NIC: what of the collective is not hidden / 10 %", "each ≤ 1 (overlap ≥ 90 %)", 1,
                                   [((1 - p["overlap"]) / (1 - OVERLAP_TARGET), where(key)) for key, p in free]))
        verdicts.append(verdict_of(35, "one thread of both ranks: CPU time of begin and wait, a rank, µs / 2", "each ≤ 2 µs", 1,
                                   [((p["begin_cpu_us"] + p["wait_cpu_us"]) / 2 / 2, where(key)) for key, p in free]))
    return verdicts


def table(found, write):
    head = ["contender", "ranks", "operation", "size", "alone µs", "computing µs", "both µs", "overlap", "CPU of begin µs", "of wait µs"]
    lines = [[p["contender"], str(p["ranks"]), p["collective"], human(p["bytes"]), *[f"{p[k]:.4g}" for k in ("t_pure_us", "t_cpu_us", "t_both_us")],
              f"{p['overlap']:.0%}", f"{p['begin_cpu_us']:.3g}", f"{p['wait_cpu_us']:.3g}"]
             for p in sorted(found, key=lambda p: (p["ranks"], p["collective"], p["bytes"], p["contender"]))]
    return "### Row 35: started, computed beside, waited for\n\n" + write(head, lines)
