# SPDX-License-Identifier: Apache-2.0
"""Measures Troupe, its peers and the machine's limit together: python3 bench/driver --help; what and why: bench/README.md."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time

from contenders import CORES, KINDS, Contender, available, placement
import extras
import paths
import plots
import processes
import race
import tables

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"]
SIZES = [8 * 4 ** k for k in range(12)] + [64 << 20]
QUICK_SIZES = [8, 512, 32 << 10, 2 << 20, 32 << 20]
FURTHER = ["gather", "scatter", "barrier", *paths.V_FORMS, *processes.PAIRS]  # not in the race of rows 1 to 5
NAMED_ROWS = {**processes.ROWS, **paths.ROWS}
ROWS = sorted({*range(1, 11), *NAMED_ROWS})
# The limit is compared from 256 KiB on, in steps of its own; the other peers are not asked for these.
LIMIT_SIZES = [(256 << 10) * 4 ** k for k in range(5)]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def parse_arguments():
    def names(known):
        def parse(text):
            parts = text.split(",")
            for part in parts:
                if part not in known:
                    raise argparse.ArgumentTypeError(f"'{part}' is none of {', '.join(known)}")
            return parts
        return parse

    def numbers(text):
        return [int(part) for part in text.split(",")]

    def row_numbers(text):
        found, by_name = set(), {name: row for row, name in NAMED_ROWS.items()}
        for part in text.split(","):
            first, _, last = part.partition("-")
            if part in by_name:
                found.add(by_name[part])
            elif first.isdigit() and (not last or last.isdigit()):
                found.update(row for row in ROWS if int(first) <= row <= int(last or first))
            if part not in by_name and not (first.isdigit() and int(first) in ROWS and int(last or first) in ROWS):
                raise argparse.ArgumentTypeError(f"'{part}': rows are 1 to 10 and " + ", ".join(f"{row} ({name})" for row, name in NAMED_ROWS.items()))
        return found

    a = argparse.ArgumentParser(prog="bench/driver", description=__doc__)
    a.add_argument("--quick", action="store_true", help="five sizes, three rounds: a look, not a verdict")
    a.add_argument("--collectives", type=names(COLLECTIVES + FURTHER), metavar="A,B", help="rows 1-6: of those that race; 11-16, 24, 27, 32: of theirs")
    a.add_argument("--ranks", type=numbers, metavar="N,M", help="instead of 2, 4 and 8, or of what a row is about")
    a.add_argument("--sizes", type=numbers, metavar="BYTES,…", help="instead of 8 B … 64 MiB in steps of 4, or of what a row is about")
    a.add_argument("--only", type=names(list(KINDS)), metavar="A,B", help=f"of {', '.join(KINDS)}; default: all but troupe-async")
    a.add_argument("--rounds", type=int, help="repetitions of every point; the median counts (default 5; quick: 3)")
    a.add_argument("--budget-ms", type=float, help="timed part of one repetition (default 12; quick: 6)")
    a.add_argument("--rows", type=row_numbers, default=set(ROWS), metavar="N,M-K,NAME", help="of the target table (default: all); 1 to 5 are one race")
    a.add_argument("--update", metavar="FILE", help="put the target table into FILE, between its lines `<!-- bench:begin -->` and `<!-- bench:end -->`; rows 11 to 18: of `processes`; rows from 21 on: of `paths`")
    a.add_argument("--fresh", action="store_true", help="rewrite the inputs before every call also where they fit the cache")
    a.add_argument("--fixed-root", action="store_true", help="broadcast, reduce: root 0 in every call, not call number mod ranks")
    a.add_argument("--patience", type=float, default=60, help="seconds one repetition may take before its contender is ended")
    a.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="build folder (default build/release)")
    a.add_argument("--out", default=os.path.join(ROOT, "build", "bench"), help="where results go (default build/bench)")
    a.add_argument("--load", metavar="FILE", help="measure nothing: tables and plots from an earlier results.json")
    o = a.parse_args()
    o.path_rounds = o.rounds or (5 if o.quick else 7)  # rows 21 to 34: single points count, so that more repetitions do
    o.rounds = o.rounds or (3 if o.quick else 5)
    o.budget_ms = o.budget_ms or (6 if o.quick else 12)
    o.ranks_given, o.collectives_given = o.ranks is not None, o.collectives is not None
    o.ranks, o.collectives = o.ranks or [2, 4, 8], o.collectives or COLLECTIVES
    return o


def points_of(options, ranks):
    """[(collective, bytes, whether for the limit only)]; sizes that round up to the same counts appear once."""
    found = []
    for collective in (c for c in options.collectives if c in COLLECTIVES):
        unit = 4 * ranks if collective in ("all_gather", "reduce_scatter", "all_to_all") else 4
        seen = set()
        for size in options.sizes or (QUICK_SIZES if options.quick else SIZES):
            real = max(size // unit, 1) * unit
            if real not in seen:
                found.append((collective, size, False))
            seen.add(real)
        if collective == "all_reduce" and not options.sizes and not options.quick:
            found += [(collective, size, True) for size in LIMIT_SIZES if size not in seen]
    # One size after the other, all collectives of a size together: drift of the machine hits all of them alike.
    return sorted(found, key=lambda point: point[1])


def fits(size, ranks, contenders):
    """Buffers stay mapped: all contenders' together must fit the memory that is free now, with room to spare."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    return 2 * size * ranks * contenders < 0.7 * free


def chosen(options, programs):
    names = options.only or [name for name in KINDS if name != "troupe-async"]
    present = [name for name in names if available(name, programs)]
    for name in names:
        if name not in present:
            print(f"bench: {name} is not built or its packages are not installed: left out")
    return present


def takes_part(name, ranks, collective, size, for_limit):
    if name in ("troupe-group", "troupe-persistent"):
        return collective == "all_reduce" and not for_limit
    if name == "limit":
        return collective == "all_reduce"
    # No target names these, and they are slow there (MPICH's waiting processes do not yield): a few sizes show the curve.
    if name == "gloo" or name == "mpich" and ranks > CORES:
        return not for_limit and size in QUICK_SIZES and (ranks <= CORES or size < 32 << 20)
    return not for_limit or name == "troupe"


def measure_rank_count(options, ranks, names, programs, samples, commands):
    logs = os.path.join(options.out, "logs")
    os.makedirs(logs, exist_ok=True)
    group = [Contender(name, ranks, programs, logs) for name in names]
    commands.update({f"{c.name}-{ranks}": " ".join(c.command) + f"   ({placement(c.name, ranks)})" for c in group})
    points = [p for p in points_of(options, ranks) if fits(p[1], ranks, len(group))]
    if len(points) < len(points_of(options, ranks)):
        print(f"bench: {ranks} ranks: the largest sizes do not fit the free memory and are left out")
    if not points:
        return
    ask = lambda c, p, turn: c.ask(p[0], p[1], options, check=turn == 0)
    for c, (collective, size, _), answer in race.run(group, points, options.rounds, lambda c, p: takes_part(c.name, ranks, *p), ask, f"{ranks} ranks"):
        samples.setdefault((c.name, ranks, collective, size), []).append(answer)


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    revision = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    return {"cpu": model, "cores": CORES, "kernel": platform.release(), "revision": revision, "load_before": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%d %H:%M:%S")}


def about_machine(data):
    about = data["machine"]
    text = [f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, revision {about['revision']}, {about['date']}."]
    if about["load_before"] > 0.3 * about["cores"]:
        text.append(f"**The machine was not idle (load {about['load_before']:.1f} before the run): do not judge by these numbers.**")
    return text + [f"Tuning: {data.get('tuning', 'unknown')}."]


def about_numbers(data, points):
    text = [f"f32, sum, out of place; medians of {data['rounds']} interleaved repetitions or more."]
    if data["rounds"] > 1 and points.all:
        text.append(f"Repetitions of a point spread by {tables.noise(points):.0%} (median of (max − min)/median).")
    if data["fresh"]:
        text.append("Inputs rewritten before every call (--fresh).")
    if any(p["collective"] in ("broadcast", "reduce") for p in points.all):
        text.append("The root of broadcast and reduce moves on with every call, as in IMB." if data["rotate_root"] else
                    "Broadcast and reduce have root 0 in every call (--fixed-root), so eager peers overlap successive calls.")
    if data["rounds"] < 5:
        text.append(f"**{data['rounds']} repetitions only: a look, not a verdict.**")
    return text


def report(options, data):
    """Writes results.json, results.md and plots; prints the target table. Returns whether every result was right."""
    points = tables.Points(data["points"])
    data["targets"] = (tables.targets(points) if points.all else []) + extras.judge(data) + processes.judge(data) + paths.judge(data)
    wanted = data.get("rows") or ROWS
    data["targets"] = [row for row in data["targets"] if int(row["row"]) in wanted]
    with open(os.path.join(options.out, "results.json"), "w") as file:
        json.dump(data, file, indent=1)
    wrong = [f"{p['contender']} {p['collective']} {tables.human(p['bytes'])}, {p['ranks']} ranks: {p['wrong']:.0f} elements" for p in points.all if p["wrong"]]
    wrong += paths.wrong(data) + processes.wrong(data)
    shout = [f"**WRONG RESULTS: {sentence}.**" for sentence in wrong]
    of_processes = [row for row in data["targets"] if int(row["row"]) in processes.ROWS]
    of_paths = [row for row in data["targets"] if int(row["row"]) in paths.ROWS]
    others = [row for row in data["targets"] if row not in of_processes + of_paths]
    summaries = {}
    if others:
        summaries["bench"] = "\n\n".join([*about_machine(data), *about_numbers(data, points), *shout, tables.target_table(others)])
    if of_processes:
        summaries["processes"] = "\n\n".join([*about_machine(data), *processes.about(data), *shout, tables.target_table(of_processes)])
    if of_paths:
        summaries["paths"] = "\n\n".join([*about_machine(data), *about_numbers(data, points), *shout, tables.target_table(of_paths)])
    summary = "\n\n".join(summaries.values())
    names = plots.draw(points, data.get("choices"), options.out)
    pictures = "\n".join(f"![{name}]({name})" for name in names if name.endswith(".svg"))
    commands = "\n".join(f"    {name}: {command}" for name, command in data["commands"].items())
    with open(os.path.join(options.out, "results.md"), "w") as file:
        chosen = data.get("choices") if isinstance(data.get("choices"), list) else []
        more = "\n\n".join(part for part in (extras.other_tables(data), processes.detail_tables(data), paths.detail_tables(data)) if part)
        if chosen:
            more += (f"\n\n## Crossovers: the best and the chosen way\n\n{extras.crossover_table(chosen, tables.human)}\n\n"
                     f"## Every choreography with every protocol\n\n{extras.choice_tables(chosen, tables.human)}")
        file.write(f"# Measured\n\n{summary}\n\n## By collective: Troupe / peer\n\n{tables.ratio_table(points)}\n\n{pictures}\n\n"
                   f"## Every point\n\n{tables.point_tables(points)}\n\n{more}\n\n## How they were started\n\n{commands}\n")
    for marks, text in summaries.items() if options.update else ():
        update(options.update, marks, text)
    print(f"\n{summary}\n\nMore in {options.out}: results.md, results.json, plots.")
    return not wrong


def tuning_in_use(options):
    """By which constants the planner chose, in its own words."""
    command = [os.path.join(options.build, "troupe"), "run", os.path.join(ROOT, "config", "quickstart.toml"), "--dump-config"]
    try:
        said = subprocess.run(command, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return "unknown"
    line = next((line for line in said.splitlines() if line.startswith("tuning = ")), "")
    return line.partition("#")[2].strip() or "unknown"


def update(path, marks, text):
    """The one place where numbers get into a document."""
    begin, end = f"<!-- {marks}:begin -->", f"<!-- {marks}:end -->"
    with open(path) as file:
        old = file.read()
    if old.count(begin) != 1 or old.count(end) != 1 or old.index(begin) > old.index(end):
        print(f"bench: {path} has no lines {begin} and {end}, one each: left as it is")
        return
    head, tail = old[:old.index(begin) + len(begin)], old[old.index(end):]
    with open(path, "w") as file:
        file.write(f"{head}\n\n{text}\n\n{tail}")
    print(f"bench: the table is in {path}")


def main():
    options = parse_arguments()
    os.makedirs(options.out, exist_ok=True)
    if options.load:
        with open(options.load) as file:
            return 0 if report(options, json.load(file)) else 1
    programs = os.path.join(options.build, "bench", "contenders")
    racing = bool(options.rows & {1, 2, 3, 4, 5})
    names = chosen(options, programs) if racing else []
    if racing and not names:
        print(f"bench: nothing to measure in {programs}; `./dev build contenders` makes it")
        return 2
    about, samples, commands, more = machine(), {}, {}, {}
    os.makedirs(os.path.join(options.out, "logs"), exist_ok=True)
    try:
        for ranks in options.ranks if racing else []:
            measure_rank_count(options, ranks, names, programs, samples, commands)
        logs = os.path.join(options.out, "logs")
        more = extras.measure_all(options, programs, os.path.join(options.build, "troupe"), logs)
        more.update(processes.measure_all(options, programs, os.path.join(options.build, "troupe"), logs, commands))
        more.update(paths.measure_all(options, programs, os.path.join(options.build, "troupe"), logs, commands))
    except KeyboardInterrupt:
        print("bench: interrupted: reporting what there is")
    if not samples and not more:
        print("bench: nothing was measured")
        return 2
    data = {"machine": about, "rounds": min((len(a) for a in samples.values()), default=options.rounds), "fresh": options.fresh,
            "rotate_root": not options.fixed_root, "commands": commands, "budget_ms": options.budget_ms, "points": tables.summarise(samples, options.fixed_root),
            "tuning": tuning_in_use(options), "rows": sorted(options.rows), **more}
    return 0 if report(options, data) else 1


sys.exit(main())
