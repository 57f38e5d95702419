# SPDX-License-Identifier: Apache-2.0
"""Row 37 of the target table: dispatch and combine of a layer of experts against permute, MPI_Alltoallv there and back, un-permute and sum
(harness/experts.hpp).

Each round runs every contender once over all points, beginning with another one each time; a number is the median over the rounds."""

import os
import statistics

from contenders import Failed, mpi_programs
from extras import run_program

TOKENS, HIDDEN = [64, 512, 4096], [1024, 4096, 7168]
KINDS = ["uniform", "skewed"]
EACH_TARGET, MEAN_TARGET = 1.0, 0.7


def contenders(programs, ranks):
    """name: command, which takes seconds and points"""
    ours = [os.path.join(programs, "experts"), str(ranks)]
    found = {"troupe": ours, "troupe, processes": [os.path.join(programs, "../../troupe"), "launch", "-n", str(ranks), "--no-prefix", *ours]}
    found.update(mpi_programs(programs, "experts", ranks))
    return found


def measure(options, programs):
    rounds, seconds = (1, "0.02") if options.quick else (3, "0.1")
    tokens, hidden = (TOKENS[:2], HIDDEN[:2]) if options.quick else (TOKENS, HIDDEN)
    # What all ranks hold in all buffers has to fit the memory: 8 ranks of 4096 tokens of 7168 would not.
    samples = {}
    for ranks in options.ranks if options.ranks_given else (2, 4, 8):
        points = [f"{kind}:{n}:{h}" for kind in KINDS for n in tokens for h in hidden if n * h * 4 * ranks <= 512 << 20]
        all_of_them = list(contenders(programs, ranks).items())
        for turn in range(rounds):
            for k in range(len(all_of_them)):
                name, command = all_of_them[(turn + k) % len(all_of_them)]
                for p in run_program([*command, seconds, *points], 600):
                    samples.setdefault((name, ranks, p["collective"], p["tokens"], p["hidden"]), []).append(p)
    if not samples:
        raise Failed("no point of row 37 was asked for")
    return [{"contender": name, "ranks": ranks, "collective": kind, "tokens": n, "hidden": h, "bytes": runs[0]["bytes"],
             "us": statistics.median(r["us"] for r in runs), "us_all": [r["us"] for r in runs], "wrong": max(r["wrong"] for r in runs)}
            for (name, ranks, kind, n, h), runs in samples.items()]


def judge(found, verdict_of):
    of = {(p["contender"], p["ranks"], p["collective"], p["tokens"], p["hidden"]): p for p in found}
    rows = []
    for ours in ("troupe", "troupe, processes"):
        for peer in ("openmpi", "mpich"):
            ratios = [(p["us"] / theirs["us"], f"{key[1]}, {key[2]} tokens of {key[3]}, {key[0]} ranks")
                      for (name, *key), p in of.items() if name == ours and (theirs := of.get((peer, *key)))]
            if ratios:
                rows.append(verdict_of(37, f"experts, {'threads' if ours == 'troupe' else 'processes'}: dispatch and combine / permute and alltoallv of {peer}",
                                       f"each ≤ {EACH_TARGET:g}; geometric mean ≤ {MEAN_TARGET}", EACH_TARGET, ratios, MEAN_TARGET))
    return rows


def table(found, write):
    names = sorted({p["contender"] for p in found})
    of = {(p["contender"], p["ranks"], p["collective"], p["tokens"], p["hidden"]): p["us"] for p in found}
    keys = sorted({key[1:] for key in of})
    lines = [[str(ranks), kind, str(n), str(h), *[f"{of[name, ranks, kind, n, h]:.4g}" if (name, ranks, kind, n, h) in of else "–" for name in names]]
             for ranks, kind, n, h in keys]
    return "### Row 37: a layer of experts, µs for dispatch and combine\n\n" + write(["ranks", "routing", "tokens", "hidden", *names], lines)
