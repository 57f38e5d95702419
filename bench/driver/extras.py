# SPDX-License-Identifier: Apache-2.0
"""Rows 6 to 10 of the target table: what is not a race against peers. Every function returns plain data for results.json."""

import json
import math
import statistics
import subprocess
import os

from contenders import Contender, Failed

CHOICE_SIZES = [8 * 4 ** k for k in range(11)]  # 8 B … 8 MiB
QUICK_CHOICE_SIZES = [8, 2048, 32 << 10, 512 << 10]
SURVIVE = 1.5  # candidates within this factor of the best of the first round are measured again


def run_program(command, seconds):
    """The lines of JSON that a program prints; Failed with its own words if it does not end well."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not there; `./dev build contenders` makes it") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{os.path.basename(command[0])} {' '.join(command[1:])}: no end after {seconds} s") from None
    if done.returncode != 0:
        raise Failed(f"{os.path.basename(command[0])} {' '.join(command[1:])}: {(done.stderr or 'failed').strip().splitlines()[-1]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


# -- row 6 ------------------------------------------------------------------------------------------------------------

def candidates_of(troupe, collective, ranks, size):
    command = [troupe, "explain", collective, "--ranks", str(ranks), "--bytes", str(size), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not there; `./dev build` makes it") from None
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    return [c for c in json.loads(done.stdout)["candidates"] if c["eligible"]]


def choices(options, programs, troupe, logs):
    """Every choreography with every protocol at every point: [{ranks, collective, asked, rows: [{choreography, protocol, us, …}]}]."""
    found = []
    for ranks in options.ranks:
        us = Contender("troupe", ranks, programs, logs)
        try:
            for collective in options.collectives if not options.quick else options.collectives[:1]:
                for size in QUICK_CHOICE_SIZES if options.quick else options.sizes or CHOICE_SIZES:
                    unit = 4 * ranks if collective in ("all_gather", "reduce_scatter", "all_to_all") else 4
                    if size < unit:
                        continue  # would round up to the next size
                    found.append({"ranks": ranks, "collective": collective, "asked": size,
                                  "rows": one_choice(us, candidates_of(troupe, collective, ranks, size), collective, size, options)})
            print(f"bench: {ranks} ranks: choices measured", flush=True)
        finally:
            us.end()
    return found


def one_choice(us, candidates, collective, size, options):
    rows = [{"choreography": c["choreography"], "protocol": c["protocol"], "predicted_us": c["predicted_us"], "chosen": c["chosen"],
             "us_all": []} for c in candidates]
    def measure(row, budget, check):
        answer = us.ask(collective, size, options, check, budget, (row["choreography"], row["protocol"]))
        if answer["wrong"]:
            raise Failed(f"{collective} by {row['choreography']} ({row['protocol']}): {answer['wrong']:.0f} wrong elements")
        row["us_all"].append(answer["us"])
    for row in rows:
        measure(row, 2, True)
    best = min(row["us_all"][0] for row in rows)
    again = [row for row in rows if row["chosen"] or row["us_all"][0] <= SURVIVE * best]
    for row in again:
        row["us_all"].clear()  # the first was a look
    for turn in range(3):
        for index in range(len(again)):
            measure(again[(index + turn) % len(again)], options.budget_ms / 3, False)
    for row in rows:
        row["us"] = statistics.median(row["us_all"])
    rows.sort(key=lambda row: row["us"])
    duel(rows, lambda row: us.ask(collective, size, options, False, options.budget_ms / 3, (row["choreography"], row["protocol"]))["us"])
    return rows


def duel(rows, measure):
    """The best of many noisy numbers looks better than it is: the choice and the best are compared once more, by themselves."""
    chosen = next((row for row in rows if row["chosen"]), None)
    if chosen is None or chosen is rows[0]:
        return
    turns = [(measure(chosen), measure(rows[0])) for _ in range(5)]
    chosen["duel_us"], rows[0]["duel_us"] = (statistics.median(column) for column in zip(*turns))


def choice_ratio(point):
    """The choice's time / the best's; None where nothing was chosen."""
    best, chosen = point["rows"][0], next((r for r in point["rows"] if r["chosen"]), None)
    if chosen is None:
        return None
    return chosen["duel_us"] / best["duel_us"] if "duel_us" in chosen else 1.0


# -- rows 7 to 10 -----------------------------------------------------------------------------------------------------

def many_ranks(options, programs):
    program = os.path.join(programs, "many_ranks")
    counts = (128, 256) if options.quick else (64, 256, 1024)
    rows = []
    for mode in ("group", "threads"):
        for ranks in counts:
            if mode == "threads" and ranks > 256:
                continue
            rows.append({"mode": mode, **run_program([program, "run", str(ranks), mode], 120)[0]})
    return rows


def idle(options, programs):
    return run_program([os.path.join(programs, "many_ranks"), "idle", "64", "2" if options.quick else "5"], 60)[0]


def typed(options, programs):
    rows = []
    for ranks in (n for n in options.ranks if n in (2, 4, 8)):
        rows += run_program([os.path.join(programs, "typed"), str(ranks), str(16 << 20), "3" if options.quick else "7"], 120)
    return rows


def overlap(options, programs):
    return [run_program([os.path.join(programs, "overlap"), "2"], 120)[0] for _ in range(1 if options.quick else 3)]


MEASURES = {6: ("choices", None), 7: ("many_ranks", many_ranks), 8: ("idle", idle), 9: ("typed", typed), 10: ("overlap", overlap)}


def measure_all(options, programs, troupe, logs):
    data = {}
    for row, (name, action) in MEASURES.items():
        if row not in options.rows:
            continue
        try:
            data[name] = choices(options, programs, troupe, logs) if row == 6 else action(options, programs)
        except Failed as problem:
            print(f"bench: row {row}: {problem}")
            data[name] = {"failed": str(problem)}
        print(f"bench: row {row} measured", flush=True)
    return data


# -- verdicts ---------------------------------------------------------------------------------------------------------

def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values))


def judge(data):
    """Rows for the target table, in the shape of tables.targets()."""
    rows = []
    for row, (name, _) in MEASURES.items():
        found = data.get(name)
        if found is None:
            continue
        if isinstance(found, dict) and "failed" in found:
            rows.append({"row": str(row), "what": name, "target": "–", "points": 0, "verdict": "failed: " + found["failed"]})
        elif found:
            rows += {6: judge_choices, 7: judge_many, 8: judge_idle, 9: judge_typed, 10: judge_overlap}[row](found)
    return rows


def judge_choices(found):
    ratios = [(choice_ratio(p), p) for p in found if choice_ratio(p) is not None]
    worst, where = max(ratios, key=lambda pair: pair[0])
    middle = geometric_mean([r for r, _ in ratios])
    return [{"row": "6", "what": "planner's choice / best of every choreography × protocol", "target": "geometric mean ≤ 1.1", "points": len(ratios),
             "worst": worst, "worst_at": f"{where['collective']} {where['asked']} B, {where['ranks']} ranks", "geometric_mean": middle,
             "verdict": "met" if middle <= 1.1 else f"missed: by {middle / 1.1:.2f}×"}]


def judge_many(found):
    rows = []
    group = {p["ranks"]: p for p in found if p["mode"] == "group"}
    counts = sorted(group)[-2:]
    small, large = group[counts[0]], group[counts[1]]
    growth = {"barrier": lambda p: p * math.log2(p), "all_reduce": lambda p: p * math.log2(p), "all_to_all": lambda p: p * p}
    for name, law in growth.items():
        grown = large[name + "_us"] / small[name + "_us"]
        allowed = law(counts[1]) / law(counts[0])
        rows.append({"row": "7", "what": f"{name}, {counts[0]} → {counts[1]} ranks: growth / allowed growth", "target": "≤ 1",
                     "points": 1, "worst": grown / allowed, "worst_at": f"{small[name + '_us']:.0f} → {large[name + '_us']:.0f} µs",
                     "verdict": "met" if grown <= allowed else f"missed: {grown / allowed:.2f}×"})
    memory = max(p["bytes_per_idle_rank"] for p in group.values())
    rows.append({"row": "7", "what": "memory of an idle rank / 64 KiB", "target": "≤ 1", "points": len(group), "worst": memory / 65536,
                 "worst_at": f"{memory / 1024:.0f} KiB", "verdict": "met" if memory <= 65536 else "missed"})
    return rows


def judge_idle(found):
    percent = found["cpu_percent"]
    return [{"row": "8", "what": f"idle engine, 64 ranks, {found['seconds']:g} s: processor time, %", "target": "0", "points": 1,
             "worst": percent, "worst_at": f"{found['cpu_seconds'] * 1e6:.0f} µs", "verdict": "met" if percent < 0.05 else "missed"}]


def judge_typed(found):
    ratios = [(p["us"] / p["limit_us"], p) for p in found if p["limit_us"]]
    if not ratios:
        return [{"row": "9", "what": "f16, bf16, i8 / limit", "target": "each ≤ 1.3", "points": 0, "verdict": "not measured: no limit program for this processor"}]
    worst, where = max(ratios, key=lambda pair: pair[0])
    above = sum(r > 1.3 for r, _ in ratios)
    return [{"row": "9", "what": "f16, bf16, i8, 16 MiB all_reduce / limit", "target": "each ≤ 1.3", "points": len(ratios), "worst": worst,
             "worst_at": f"{where['type']}, {where['ranks']} ranks", "geometric_mean": geometric_mean([r for r, _ in ratios]),
             "verdict": f"missed: {above} of {len(ratios)} above 1.3, the worst by {worst / 1.3:.2f}×" if above else "met"}]


def judge_overlap(found):
    rows = []
    for kind in ("memory", "cache"):
        middle = lambda key: statistics.median(p[kind][key] for p in found)
        efficiency, loss, control = middle("efficiency"), middle("loss"), middle("loss_control")
        # What the copying control costs the caller is what memory traffic explains; a tenth is for the noise of either.
        rows.append({"row": "10", "what": f"16 MiB asynchronous, the caller computes from {kind}: its slowdown / next to a copying thread",
                     "target": "≤ 1.1", "points": len(found), "worst": (1 + loss) / (1 + control),
                     "worst_at": f"overlap efficiency {efficiency:.0%}; loss {loss:.0%}, control {control:.0%}",
                     "verdict": "met" if (1 + loss) / (1 + control) <= 1.1 else "missed"})
    return rows


# -- tables -----------------------------------------------------------------------------------------------------------

def crossover_table(found, human):
    """The best and the chosen way at every point."""
    lines = ["| ranks | collective | size | best | µs | chosen | µs | chosen / best |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for p in found:
        best, chosen = p["rows"][0], next((r for r in p["rows"] if r["chosen"]), None)
        name = lambda r: f"{r['choreography']}, {r['protocol']}"
        cells = [str(p["ranks"]), p["collective"], human(p["asked"]), name(best), f"{best['us']:.4g}"]
        cells += [name(chosen), f"{chosen['us']:.4g}", f"{choice_ratio(p):.2f}"] if chosen else ["–"] * 3
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def choice_tables(found, human):
    """µs of every choreography with every protocol over size, a table for each number of ranks and collective."""
    parts = []
    for ranks, collective in dict.fromkeys((p["ranks"], p["collective"]) for p in found):
        points = [p for p in found if (p["ranks"], p["collective"]) == (ranks, collective)]
        table = {(r["choreography"], r["protocol"]): {} for p in points for r in p["rows"]}
        for p in points:
            for r in p["rows"]:
                table[r["choreography"], r["protocol"]][p["asked"]] = f"{r['us']:.4g}" if r is not p["rows"][0] else f"**{r['us']:.4g}**"
        head = ["choreography", "protocol", *[human(p["asked"]) for p in points]]
        lines = [f"### {collective}, {ranks} ranks, µs (bold: the best)", "", "| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
        lines += ["| " + " | ".join([*key, *[cells.get(p["asked"], "–") for p in points]]) + " |" for key, cells in sorted(table.items())]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def other_tables(data):
    parts = []
    if isinstance(data.get("many_ranks"), list):
        lines = ["### Many ranks in one process, µs", "", "| ranks | driven by | barrier | all_reduce 1 KiB | all_to_all 64 KiB a rank | first all_to_all | KiB of an idle rank |",
                 "| --- | --- | --- | --- | --- | --- | --- |"]
        for p in data["many_ranks"]:
            idle_kib = f"{p['bytes_per_idle_rank'] / 1024:.0f}" if "bytes_per_idle_rank" in p else "–"
            lines.append(f"| {p['ranks']:.0f} | {'one thread' if p['mode'] == 'group' else 'a thread each'} | {p['barrier_us']:.4g} | {p['all_reduce_us']:.4g} | "
                         f"{p['all_to_all_us']:.4g} | {p['all_to_all_first_us']:.4g} | {idle_kib} |")
        parts.append("\n".join(lines))
    if isinstance(data.get("typed"), list):
        lines = ["### Element types, all_reduce 16 MiB", "", "| type | ranks | µs | limit µs | / limit | wrong |", "| --- | --- | --- | --- | --- | --- |"]
        lines += [f"| {p['type']} | {p['ranks']} | {p['us']:.4g} | {p['limit_us']:.4g} | {p['us'] / p['limit_us']:.2f} | {p['wrong']} |"
                  for p in data["typed"] if p["limit_us"]]
        parts.append("\n".join(lines))
    if isinstance(data.get("overlap"), list):
        lines = ["### Overlap, 16 MiB, one thread drives 2 ranks and computes", "", "| it computes from | t_comm µs | t_comp µs | t_both µs | efficiency | loss | control's loss |",
                 "| --- | --- | --- | --- | --- | --- | --- |"]
        for p in data["overlap"]:
            for kind in ("memory", "cache"):
                r = p[kind]
                lines.append(f"| {kind} | {r['t_comm_us']:.0f} | {r['t_comp_us']:.0f} | {r['t_both_us']:.0f} | {r['efficiency']:.2f} | {r['loss']:.2f} | {r['loss_control']:.2f} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
