# SPDX-License-Identifier: Apache-2.0
"""Rows 11 to 18 of the target table: ranks that are processes, of this host (11 to 14, 17, 18) and of several (15, 16), beside the processes of MPI and Gloo; and, in
13, 14 and 18, beside threads.

Each contender is a set of processes, started once by its own launcher (ours: `troupe launch`), with the measuring loop of all others. Hosts are network
namespaces (hosts.py); rows that need them are left out, with a message, where there can be none. A row's time is limited: what is measured at
least once is everything, and how often the rest. All data goes to results.json under "processes" and "starts"."""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time

from contenders import CORES, Contender, Failed, available, placement
from extras import geometric_mean
from hosts import Hosts, why_not
import paths
import race
from tables import human, ratio

ROWS = {11: "processes_2", 12: "processes_4_8", 13: "processes_small", 14: "processes_shared", 15: "hosts", 16: "hosts_of_4", 17: "start", 18: "uneven_counts"}
# Seconds for one race, beyond its first round; with the starting of everything some nine minutes.
LIMITS = {2: 95, 4: 75, 8: 85, "hosts": 45, "hosts_of_4": 35}
SIZES = [8, 512, 8 << 10, 64 << 10, 1 << 20, 8 << 20]
LARGEST = 64 << 20
SHARED_SIZES = [256 << 10, 1 << 20, 8 << 20]
V_SIZES = [64, 8 << 10, 1 << 20]
UNEVEN_SIZES = [64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 16 << 20]
HOST_SIZES = [8, 512, 8 << 10, 64 << 10, 1 << 20, 16 << 20]
QUICK_SIZES = [8, 8 << 10, 1 << 20]
UNIFORM = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter"]
PAIRS = ["ping_pong", "send_recv"]
PEERS = ("openmpi", "mpich", "gloo")
SOCKETS_SIZE = 16 << 20  # of what is compared with bare sockets
STARTED = 64  # processes


# -- what is measured -------------------------------------------------------------------------------------------------

def points_on_host(options, ranks):
    """Rows 11 to 13: every operation; the largest size of few, as it takes a second each."""
    row = 11 if ranks == 2 else 12
    found, usual = [], QUICK_SIZES if options.quick else SIZES
    only = lambda names: [c for c in names if c in options.collectives] if options.collectives_given else names
    point = lambda collective, size, variant="", words=(): paths.point(row, ranks, collective, size, variant, words, who=("troupe-processes", "openmpi", "mpich"))
    if row in options.rows:
        found += [point(c, s) for c in only(UNIFORM + PAIRS) for s in options.sizes or usual if c != "ping_pong" or ranks == 2]
        if not options.quick and not options.sizes:
            large = [c for c in UNIFORM[:6] + PAIRS if c != "ping_pong"] if ranks == 2 else ["all_reduce"]
            found += [point(c, LARGEST) for c in only(large)]
        for counts in ("same", "fresh"):
            found += [point(c, s, f"{counts} counts", (f"counts={counts}",)) for c in only(paths.V_FORMS) for s in options.sizes or V_SIZES]
    if 18 in options.rows:
        sizes = options.sizes or (V_SIZES if options.quick else UNEVEN_SIZES)
        found += [paths.point(18, ranks, "all_to_all_v", s, f"{counts} counts", (f"counts={counts}",), who=("troupe-processes", "troupe", "openmpi", "mpich"))
                  for counts in ("random", "skewed") for s in sizes]
        found += [paths.point(18, ranks, "all_to_all", s, "equal blocks", who=("troupe-processes", "troupe")) for s in sizes]
    if ranks == 2 and 13 in options.rows:
        found.append(paths.point(13, 2, "all_reduce", 8, who=("troupe-processes", "troupe", "openmpi", "mpich")))
    if ranks == 2 and 14 in options.rows:
        found += [paths.point(14, 2, c, s, who=("troupe-shared", "troupe")) for c in only(UNIFORM + PAIRS) for s in options.sizes or SHARED_SIZES]
    return sorted(found, key=lambda p: p["asked"])


def points_on_hosts(options, hosts, each):
    row = 15 if each == 1 else 16
    variant = f"{hosts} hosts" + (f" × {each}" if each > 1 else "")
    sizes = options.sizes or (QUICK_SIZES + [SOCKETS_SIZE] if options.quick else HOST_SIZES)
    operations = UNIFORM[:6] + (["send_recv", "all_to_all_v"] if row == 15 else [])
    who = ("troupe-processes", *PEERS) if row == 15 else ("troupe-processes", "openmpi")
    found = []
    for c in [c for c in operations if not options.collectives_given or c in options.collectives]:
        for s in sizes:
            bare = ("limit-sockets",) if (hosts, row) == (2, 15) and (c == "send_recv" or (c, s) == ("all_reduce", SOCKETS_SIZE)) else ()
            found.append(paths.point(row, hosts * each, c, s, variant, ("counts=fresh",) if c.endswith("_v") else (), who=(*who, *bare)))
    return sorted(found, key=lambda p: p["asked"])


def takes_part(contender, p, options):
    if contender.name not in p["who"]:
        return False
    if contender.name == "mpich" and p["ranks"] > CORES:
        return p["asked"] in (8, 64, 64 << 10) and not p["variant"].endswith("counts")  # its waiting processes do not yield: milliseconds
    if contender.name == "gloo":
        return p["asked"] <= 1 << 20 or p["collective"] == "all_reduce"
    return True


def wanted(options, name):
    return not options.only or name in options.only or name.startswith("troupe") and "troupe" in options.only or name.startswith("limit") and "limit" in options.only


class Processes:
    """What measuring these rows needs to know."""

    def __init__(self, options, programs, troupe, logs, commands):
        self.options, self.programs, self.troupe, self.logs, self.commands = options, programs, troupe, logs, commands

    def program(self, name):
        return os.path.join(self.programs, name)

    def contender(self, name, ranks, label, command=None, members=None):
        made = Contender(name, ranks, self.programs, self.logs, command, members)
        about = placement("openmpi" if name == "openmpi" else name, ranks) if command is None else f"{ranks} processes, placed by the system"
        self.commands[f"{name}-{label}"] = " ".join(made.command) + f"   ({about})"
        return made

    def race(self, group, points, limit, label):
        """Adds to self.samples."""
        options = self.options
        ask = lambda c, p, turn: c.ask(p["collective"], p["asked"], options, check=turn == 0, words=p["words"], rotate=not options.fixed_root)
        group = [c for c in group if any(takes_part(c, p, options) for p in points)]
        samples = {}
        for c, p, answer in race.run(group, points, options.path_rounds, lambda c, p: takes_part(c, p, options), ask, label, limit / (4 if options.quick else 1)):
            samples.setdefault((points.index(p), c.name), []).append(answer)
        return [paths.summarise(points[i], name, answers) for (i, name), answers in sorted(samples.items())]


def on_this_host(work, ranks):
    points = points_on_host(work.options, ranks)
    launched = [work.troupe, "launch", "-n", str(ranks), work.program("troupe_ranks"), "join", "1"]
    group = [work.contender("troupe-processes", ranks, ranks, launched, ranks)]
    if any("troupe-shared" in p["who"] for p in points):
        group.append(work.contender("troupe-shared", ranks, ranks, launched[:-2] + ["shared", "1"], ranks))
    if any("troupe" in p["who"] for p in points):
        group.append(work.contender("troupe", ranks, ranks))
    group += [work.contender(name, ranks, ranks) for name in ("openmpi", "mpich") if wanted(work.options, name) and available(name, work.programs)]
    return work.race(group, points, LIMITS.get(ranks, 60), f"{ranks} processes") if points else []


def over_hosts(work, count, each):
    """`each` processes on each of `count` hosts."""
    points, ranks, label = points_on_hosts(work.options, count, each), count * each, f"{count}x{each}-hosts"
    if not points:
        return []
    present = [name for name in PEERS if wanted(work.options, name) and available(name, work.programs)]
    with Hosts(count) as hosts, contextlib.ExitStack() as stack:
        start = lambda words: hosts.troupe(work.troupe, words, each)
        group = [work.contender("troupe-processes", ranks, label, start([work.program("troupe_ranks"), "join", "1"]), ranks)]
        if "openmpi" in present:
            # On hosts of its own it would know by itself that processes share cores.
            more = ("--mca", "btl", "tcp,self") if each == 1 else ()
            more += ("--mca", "mpi_yield_when_idle", "1") if ranks > CORES else ()
            group.append(work.contender("openmpi", ranks, label, hosts.openmpi([work.program("peer_openmpi")], each, more), ranks))
        if each == 1 and "mpich" in present:
            group.append(work.contender("mpich", ranks, label, hosts.mpich([work.program("peer_mpich")], each), ranks))
        if each == 1 and "gloo" in present:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gloo-"))
            group.append(work.contender("gloo", ranks, label, start([work.program("peer_gloo"), "join", folder, "e0"]), ranks))
        if (count, each) == (2, 1) and wanted(work.options, "limit"):
            group.append(work.contender("limit-sockets", ranks, label, start([work.program("limit_sockets"), hosts.address(0), "7777"]), ranks))
        return work.race(group, points, LIMITS["hosts" if each == 1 else "hosts_of_4"], label)


# -- row 17 -----------------------------------------------------------------------------------------------------------

def start_once(command):
    """(seconds until the slowest process has its first collective behind it, seconds until the launcher has ended)"""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    began = time.monotonic()
    try:
        ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]}: 60 s were not enough for a first collective") from None
    whole = time.monotonic() - began
    line = next((line for line in ended.stdout.splitlines() if line.startswith("{")), None)
    if ended.returncode != 0 or line is None:
        raise Failed(f"{' '.join(command)}: exit status {ended.returncode}: {ended.stderr.strip()[-300:]}")
    return json.loads(line)["done_s"] - began, whole


def measure_starts(work):
    options, n = work.options, str(work.options.ranks[0] if work.options.ranks_given else STARTED)
    commands = {"troupe-processes": [work.troupe, "launch", "--no-prefix", "-n", n, work.program("troupe_ranks"), "first", "1"]}
    if wanted(options, "openmpi") and available("openmpi", work.programs):
        commands["openmpi"] = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", n, work.program("peer_openmpi"), "first"]
    if wanted(options, "mpich") and available("mpich", work.programs):
        commands["mpich"] = ["mpirun.mpich", "-n", n, work.program("peer_mpich"), "first"]
    samples = {}
    for _ in range(2 if options.quick else 5):
        for name in list(commands):
            try:
                samples.setdefault(name, []).append(start_once(commands[name]))
            except Failed as problem:
                print(f"bench: {problem}")
                del commands[name]
    print(f"bench: start of {n} processes: {len(samples)} launchers", flush=True)
    return [{"contender": name, "ranks": int(n), "first_s": statistics.median(a for a, _ in runs), "whole_s": statistics.median(b for _, b in runs),
             "first_s_all": [a for a, _ in runs]} for name, runs in samples.items()]


def measure_all(options, programs, troupe, logs, commands):
    """{"processes": […], "starts": […], "left_out": […]} of the rows that are wanted."""
    if not options.rows & set(ROWS):
        return {}
    if not available("troupe", programs) or not os.access(troupe, os.X_OK):
        print(f"bench: rows 11 to 18 need {troupe} and troupe_ranks: left out")
        return {}
    work, data = Processes(options, programs, troupe, logs, commands), {"processes": [], "left_out": []}

    def attempt(action, *arguments):
        try:
            return action(work, *arguments)
        except (Failed, OSError, subprocess.CalledProcessError) as problem:
            print(f"bench: {problem}")
            data["left_out"].append(str(problem))
            return []

    for ranks in options.ranks if options.ranks_given else (2, 4, 8):
        if options.rows & ({11, 13, 14, 18} if ranks == 2 else {12, 18}):
            data["processes"] += attempt(on_this_host, ranks)
    shapes = [(n, 1) for n in (2, 4) if 15 in options.rows] + [(2, 4)] * (16 in options.rows)
    reason = why_not() if shapes else None
    if reason:
        print(f"bench: rows 15 and 16 are left out: {reason}")
        data["left_out"].append(f"rows 15 and 16: {reason}")
    for count, each in shapes if not reason else []:
        data["processes"] += attempt(over_hosts, count, each)
    if 17 in options.rows:
        data["starts"] = attempt(measure_starts)
    return data


# -- verdicts and tables ----------------------------------------------------------------------------------------------

def judge(data):
    m, rows = paths.Measured(data.get("processes", [])), []

    def against(row, what, peer, mean, **same):
        ratios = m.ratios(m.of(row, "troupe-processes", **same), peer)
        if ratios:
            target = "each ≤ 1" + (f"; geometric mean ≤ {mean:g}" if mean else "")
            rows.append(paths.verdict_of(row, f"{what} / {NAMES[peer]}", target, 1.0, ratios, mean))

    for peer in ("openmpi", "mpich"):
        against(11, "2 processes of a host, every operation", peer, 0.6)
    for ranks in (4, 8):
        against(12, f"{ranks} processes of a host, every operation", "openmpi", 0.45, ranks=ranks)
    small = m.ratios(m.of(13, "troupe-processes"), "troupe")
    if small:
        rows.append(paths.verdict_of(13, "8 B all_reduce, 2 processes / 2 threads", "≤ 1.3", 1.3, small))
    shared = m.ratios(m.of(14, "troupe-shared"), "troupe")
    if shared:
        rows.append(paths.verdict_of(14, "≥ 256 KiB in memory that all map (`engine.allocate`), 2 processes / 2 threads", "≤ 1.15", 1.15, shared))
    for ranks in (2, 4):
        for peer in PEERS:
            against(15, f"{ranks} hosts, sockets, every operation", peer, 0.6, ranks=ranks)
    bare = m.ratios(m.of(15, "troupe-processes", collective="all_reduce"), "limit-sockets")
    if bare:
        rows.append(paths.verdict_of(15, "16 MiB all_reduce between 2 hosts / as many bytes each way by a bare socket", "≤ 1.25 (80 % of it)", 1.25, bare))
    against(16, "2 hosts × 4 processes", "openmpi", None)
    for who, name in (("troupe-processes", "processes"), ("troupe", "threads")):
        for ranks in sorted({p["ranks"] for p in m.of(18, who)}):
            of = lambda **same: m.of(18, who, ranks=ranks, **same)
            for peer in ("openmpi", "mpich"):
                ratios = m.ratios(of(collective="all_to_all_v"), peer)
                if ratios:
                    rows.append(paths.verdict_of(18, f"all_to_all_v, fresh random and skewed counts, {ranks} {name} / {NAMES[peer]}", "each ≤ 1", 1.0, ratios))
            equal = {p["asked"]: p["us"] for p in of(collective="all_to_all")}
            ratios = [(p["us"] / equal[p["asked"]], f"{human(p['asked'])}, {ranks} ranks: {p['us']:.3g} µs against {equal[p['asked']]:.3g}")
                      for p in of(variant="random counts") if p["asked"] in equal]
            if ratios:
                rows.append(paths.verdict_of(18, f"all_to_all_v, fresh random counts, {ranks} {name} / all_to_all of as many bytes", "each ≤ 1.1", 1.1, ratios))
    starts = {p["contender"]: p for p in data.get("starts", [])}
    ours = starts.get("troupe-processes")
    for peer in ("openmpi", "mpich"):
        if ours and peer in starts:
            where = f"{ours['first_s']:.2f} s against {starts[peer]['first_s']:.2f}"
            rows.append(paths.verdict_of(17, f"start to first collective, {ours['ranks']} processes / {NAMES[peer]}'s mpirun", "≤ 1", 1.0, [(ours["first_s"] / starts[peer]["first_s"], where)]))
    return rows


NAMES = {"openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo"}


def about(data):
    """What has to be said beside the table."""
    found = data.get("processes", [])
    repetitions = [len(p["us_all"]) for p in found]
    spreads = [(max(p["us_all"]) - min(p["us_all"])) / p["us"] for p in found if len(p["us_all"]) > 1]
    text = []
    if repetitions:
        text.append(f"f32, sum, out of place; medians of {min(repetitions)} interleaved repetitions or more ({statistics.median(repetitions):g} in the median)"
                    + (f", which spread by {statistics.median(spreads):.0%} (median of (max − min)/median)." if spreads else "."))
        text.append("The root of broadcast, reduce, gather and scatter moves on with every call.")
    # Without a protocol: it says which ratios there may be at all.
    m, exchanges = paths.Measured(found), []
    for bare in m.of(15, "limit-sockets", collective="send_recv"):
        others = [(name, m.of(15, who, ranks=2, collective="send_recv", asked=bare["asked"])) for who, name in (("troupe-processes", "Troupe"), *NAMES.items())]
        exchanges.append(f"{human(bare['asked'])} {bare['us']:.3g} (" + ", ".join(f"{name} {p['us'] / bare['us']:.2f} ×" for name, points in others for p in points) + ")")
    if exchanges:
        text.append("An exchange of so many bytes each way between two hosts (send_recv) by a bare socket, which is looked at 200 times before its process sleeps, µs: " + "; ".join(exchanges) + ".")
    return text + [f"Left out: {reason}." for reason in data.get("left_out", [])]


def wrong(data):
    return paths.wrong({"paths": data.get("processes", [])})


def by_operation(found):
    """Where the time is lost, before one looks at every point."""
    m, lines = paths.Measured(found), []
    for row, ranks, variant, collective in dict.fromkeys((p["row"], p["ranks"], p["variant"], p["collective"]) for p in found):
        ours = m.of(row, "troupe-processes", ranks=ranks, variant=variant, collective=collective)
        cells = [str(row), str(ranks), variant or "–", collective]
        for peer in PEERS:
            ratios = m.ratios(ours, peer)
            worst = max(ratios, default=None)
            cells.append(f"{ratio(geometric_mean([r for r, _ in ratios]))} (worst {ratio(worst[0])}: {worst[1].split(', ')[0].split(' ', 1)[1]})" if ratios else "–")
        lines.append((row, ranks, variant, cells))
    return paths.table(["row", "ranks", "variant", "operation", *[f"/ {NAMES[peer]}" for peer in PEERS]], [cells for *_, cells in sorted(lines, key=lambda line: line[:3])])


def detail_tables(data):
    found, parts = data.get("processes", []), []
    if found:
        parts.append("### Rows 11 to 18: geometric mean of ours / peer's by operation\n\n" + by_operation(found))
        parts += paths.race_tables(found)
    if data.get("starts"):
        parts.append("### Row 17: start, s\n\n" + paths.table(["launcher", "processes", "first collective", "launcher has ended"], [
            [p["contender"], str(p["ranks"]), f"{p['first_s']:.3f}", f"{p['whole_s']:.3f}"] for p in data["starts"]]))
    return "\n\n".join(parts)
