# SPDX-License-Identifier: Apache-2.0
"""Row 36 of the target table: an MLP block divided among ranks, as a flow, beside the same steps with blocking collectives, ours and MPI's (harness/mlp.hpp).

Ours runs first, and looks for the shapes that have the shares; MPI gets the same shapes. Each round runs everything once; a number is the median over the rounds."""

import os
import statistics

from contenders import START_AS_ROOT, Failed, openmpi_command
from extras import run_program
from hosts import Hosts, why_not

SHAPES = ["rows=256,width=512", "rows=512,width=1024"]
SHARES = [10, 30, 50]
HIDDEN_TARGET = 0.7
LEAST_SHARE = 0.02


def settings(options, programs, troupe, ranks, hosts):
    """name: (our command, Open MPI's or None), which take seconds and points"""
    ours, theirs = os.path.join(programs, "mlp"), os.path.join(programs, "mlp_openmpi")
    there = os.path.exists(theirs)
    found = {"threads": ([ours, "threads", str(ranks)], None),
             "processes": ([troupe, "launch", "--no-prefix", "-n", str(ranks), ours, "join", "1"],
                           [*START_AS_ROOT, *openmpi_command(theirs, ranks)] if there else None)}
    if hosts is not None:
        found["hosts"] = (hosts.troupe(troupe, ["--no-prefix", ours, "join", "1"], 1),
                          [*START_AS_ROOT, *hosts.openmpi([theirs], 1, ("--mca", "btl", "tcp,self"))] if there else None)
    return found


def measure_setting(name, commands, options):
    ours, theirs = commands
    rounds, seconds = (1, "0.3") if options.quick else (3, "1")
    points = [f"{shape},share={share}" for shape in (SHAPES[:1] if options.quick else SHAPES) for share in SHARES]
    samples, shapes = [], points
    for _ in range(rounds):
        mine = run_program([*ours, seconds, *shapes], 300)
        shapes = [f"rows={p['rows']},width={p['width']},hidden={p['hidden']},tiles={p['tiles']}" for p in mine]
        peer = run_program([*theirs, seconds, *shapes], 300) if theirs else [None] * len(mine)
        samples.append(list(zip(mine, peer)))
    middle = lambda runs, key: statistics.median(run[key] for run in runs)
    found = []
    for asked, runs in zip(points, zip(*samples)):
        mine, peer = [m for m, _ in runs], [p for _, p in runs if p]
        point = {"setting": name, "collective": "mlp", "asked": int(asked.split("share=")[1]), **{k: mine[0][k] for k in ("ranks", "rows", "width", "hidden", "tiles")},
                 **{k: middle(mine, k) for k in ("compute_us", "unfused_us", "fused_us")}, "wrong": max(m["wrong"] for m in mine),
                 "bytes": mine[0]["rows"] * mine[0]["width"] * 4 * mine[0]["ranks"]}
        if "by_hand_us" in mine[0]:
            point["by_hand_us"] = middle(mine, "by_hand_us")
        if peer:
            point["openmpi_us"] = middle(peer, "unfused_us")
        point["share"] = (point["unfused_us"] - point["compute_us"]) / point["unfused_us"]
        # Of a communication that takes no longer than two measurements differ, no part can be told.
        if point["share"] >= LEAST_SHARE:
            point["hidden_share"] = (point["unfused_us"] - point["fused_us"]) / (point["unfused_us"] - point["compute_us"])
        found.append(point)
    return found


def measure(options, programs, troupe):
    ranks, found = options.ranks[0] if options.ranks_given else 2, []
    for name, commands in settings(options, programs, troupe, ranks, None).items():
        found += measure_setting(name, commands, options)
    reason = why_not()
    if reason or ranks != 2:
        print(f"bench: row 36 over hosts is left out: {reason or 'two ranks only'}")
        return found
    with Hosts(2) as hosts:
        try:
            found += measure_setting("hosts", settings(options, programs, troupe, ranks, hosts)["hosts"], options)
        except Failed as problem:
            print(f"bench: row 36 over hosts: {problem}")
    return found


def judge(found, verdict_of):
    rows = []
    for name in dict.fromkeys(p["setting"] for p in found):
        here = [p for p in found if p["setting"] == name]
        at = lambda p: f"{p['rows']}x{p['width']}, {p['hidden']} hidden, share {p['share']:.0%}"
        rows.append(verdict_of(36, f"MLP block, {name}: fused / unfused", "each ≤ 1", 1, [(p["fused_us"] / p["unfused_us"], at(p)) for p in here]))
        left = [(1 - p["hidden_share"], at(p)) for p in here if "hidden_share" in p]
        if left:
            rows.append(verdict_of(36, f"MLP block, {name}: share of the communication time that is left", f"each ≤ {1 - HIDDEN_TARGET:.1f}", 1 - HIDDEN_TARGET, left))
        against = [(p["fused_us"] / p["openmpi_us"], at(p)) for p in here if "openmpi_us" in p]
        if against:
            rows.append(verdict_of(36, f"MLP block, {name}: fused / Open MPI's all_gather and reduce_scatter with the same operators", "each ≤ 1", 1, against))
    return rows


def table(found, write):
    head = ["ranks as", "rows of a rank", "width", "hidden units", "compute µs", "unfused µs", "fused µs", "by hand µs", "Open MPI µs", "share of communication", "of it hidden"]
    lines = [[p["setting"], *[str(p[k]) for k in ("rows", "width", "hidden")], *[f"{p[k]:.4g}" for k in ("compute_us", "unfused_us", "fused_us")],
              f"{p['by_hand_us']:.4g}" if "by_hand_us" in p else "–", f"{p['openmpi_us']:.4g}" if "openmpi_us" in p else "–", f"{p['share']:.0%}",
              f"{p['hidden_share']:.0%}" if "hidden_share" in p else "–"] for p in found]
    return "### Row 36: an MLP block, fused and not\n\n" + write(head, lines)
