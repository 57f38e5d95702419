# SPDX-License-Identifier: Apache-2.0
"""Rows 21 to 37 of the target table: every operation on every port, and what users found slow. (Rows 11 to 18: processes.py.)

Races against peers (21 to 26, 28, 32) are measured by the contenders of rows 1 to 5, with keys behind their words (harness/control.hpp), rows 35 to 37 by nbc.py, mlp.py and experts.py; what is
ours alone (27, 29 to 31, 33, 34) by programs of bench/ours. All data goes to results.json under "paths", "first_calls", "reductions" and "waiters"."""

import os
import statistics

from contenders import CORES, Contender, Failed, available, placement
from extras import geometric_mean, run_program
import experts
import mlp
import nbc
import race
from tables import BUSBW, BLOCKS, human, ratio

ROWS = {21: "mailbox", 22: "ping_pong", 23: "send_recv", 24: "v_forms", 25: "new_sizes", 26: "split", 27: "first_calls", 28: "many_ranks_small",
        29: "avg", 30: "pre_mul_sum", 31: "levels", 32: "small_rooted", 33: "f8", 34: "two_waiters", 35: "nbc", 36: "mlp", 37: "experts"}
V_FORMS = ["all_gather_v", "all_to_all_v", "gather_v", "scatter_v", "reduce_scatter_v"]
ROOTED = ["broadcast", "reduce", "gather", "scatter"]
KINDS_OF_CALL = ["barrier", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", *V_FORMS]
PAIR_SIZES = [64, 8 << 10, 256 << 10, 1 << 20]
V_SIZES = [64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20]
QUICK_V_SIZES = [64, 8 << 10, 1 << 20]
MAILBOX = ("choreography=recursive_doubling", "protocol=simple")
MAILBOX_TARGETS = {("troupe", 2): 3, ("troupe", 4): 8, ("troupe", 8): 20, ("troupe-group", 2): 2}  # µs
FIRST_CALL_TARGETS = {8: 500, 64: 5000, 256: 30000}  # µs
FIRST_CALL_MEMORY = 50 << 20
WAITERS_TARGET = 50  # µs
NEW_SIZE_LOTS = 8  # harness/measure.hpp, unseen_lots: no contender meets a size twice
PEERS = ("openmpi", "mpich", "gloo")


# -- what is measured -------------------------------------------------------------------------------------------------

def point(row, ranks, collective, size, variant="", words=(), ours=(), rotate=True, who=("troupe", *PEERS)):
    """`words`: keys for every contender; `ours`: for Troupe only."""
    return {"row": row, "ranks": ranks, "collective": collective, "asked": size, "variant": variant, "words": tuple(words), "ours": tuple(ours),
            "rotate": rotate, "who": who}


def points_of(options):
    """The points of the races that are wanted."""
    ranks = lambda usual: options.ranks if options.ranks_given else usual
    sizes = lambda usual: options.sizes or usual
    only = lambda usual: [c for c in usual if c in options.collectives] if options.collectives_given else usual
    found = []
    if 21 in options.rows:
        for n in ranks([2, 4, 8]):
            found.append(point(21, n, "all_reduce", 8, ours=MAILBOX, who=("troupe", "troupe-group", *PEERS)))
    if 22 in options.rows:
        found += [point(22, 2, "ping_pong", s) for s in sizes(PAIR_SIZES)]
    if 23 in options.rows:
        found += [point(23, n, "send_recv", s) for n in ranks([2, 8]) for s in sizes(PAIR_SIZES)]
    if 24 in options.rows:
        for counts in ("same", "fresh"):
            found += [point(24, n, c, s, f"{counts} counts", (f"counts={counts}",)) for n in ranks([2, 8]) for c in only(V_FORMS)
                      for s in sizes(QUICK_V_SIZES if options.quick else V_SIZES)]
    if 25 in options.rows:
        found += [point(25, n, "all_reduce", s, "another size in every call", who=("troupe", "troupe-group", "openmpi", "mpich"))
                  for n in ranks([2, 8]) for s in sizes([8 << 10])]
    if 26 in options.rows:
        found += [point(26, n, "split", parts, "one part" if parts == 1 else f"{parts} parts", who=("troupe", "openmpi", "mpich"))
                  for n in ranks([2, 8]) for parts in (1, 2)]
    if 28 in options.rows:
        found += [point(28, n, "all_reduce", 8, who=("troupe", "troupe-group", "openmpi")) for n in ranks([32, 64, 128, 256])]
    if 32 in options.rows:
        for rotate in (True, False):
            found += [point(32, n, c, s, "root moves on" if rotate else "root 0", rotate=rotate) for n in ranks([2, 8]) for c in only(ROOTED)
                      for s in sizes([64] if options.quick else [8, 64])]
    return sorted(found, key=lambda p: (p["row"], p["asked"]))


def takes_part(contender, p, options):
    name, ranks = contender.name, p["ranks"]
    if name not in p["who"]:
        return False
    if name in ("mpich", "gloo"):
        # No target names these; with more ranks than cores they take milliseconds a call.
        return bool(options.only) or not options.quick and (ranks <= CORES or p["asked"] in (8, 64))
    if name == "openmpi" and ranks > (64 if options.quick else 256):
        return bool(options.only)  # starting hundreds of processes takes longer than everything else
    return True


def measure_races(options, programs, logs, commands):
    """[{row, ranks, collective, asked, variant, contender, us, …}] of the rows that are races."""
    points = points_of(options)
    wanted = options.only or ("troupe", "troupe-group", *(("openmpi",) if options.quick else PEERS))
    samples = {}
    for ranks in sorted({p["ranks"] for p in points}):
        here = [p for p in points if p["ranks"] == ranks]
        group = [Contender(name, ranks, programs, logs) for name in wanted if available(name, programs) and any(name in p["who"] for p in here)]
        group = [c for c in group if any(takes_part(c, p, options) for p in here)]
        if not group:
            continue
        commands.update({f"{c.name}-{ranks}": " ".join(c.command) + f"   ({placement(c.name, ranks)})" for c in group})

        def ask(c, p, turn):
            words = p["words"] + (p["ours"] if c.name.startswith("troupe") else ()) + ((f"lot={turn}",) if p["row"] == 25 else ())
            return c.ask(p["collective"], p["asked"], options, check=turn == 0, words=words, rotate=p["rotate"] and not options.fixed_root)

        rounds = min(options.path_rounds, NEW_SIZE_LOTS) if any(p["row"] == 25 for p in here) else options.path_rounds
        for c, p, answer in race.run(group, here, rounds, lambda c, p: takes_part(c, p, options), ask, f"rows 21 to 34, {ranks} ranks"):
            samples.setdefault((points.index(p), c.name), []).append(answer)
    return [summarise(points[index], name, answers) for (index, name), answers in sorted(samples.items())]


def summarise(p, contender, answers):
    middle = lambda key: statistics.median(answer[key] for answer in answers)
    us, ranks, collective = middle("us"), p["ranks"], p["collective"]
    base = collective.removesuffix("_v")
    factor = BUSBW["all_reduce"] if base == "all_reduce" else (lambda n: 1) if base in ("broadcast", "reduce", "send_recv", "ping_pong") else BLOCKS
    done = {"row": p["row"], "ranks": ranks, "collective": collective, "asked": p["asked"], "variant": p["variant"], "contender": contender,
            "bytes": answers[0]["bytes"], "count": answers[0]["count"], "type": "f32", "redop": "sum", "us": us,
            "us_all": [answer["us"] for answer in answers], "wrong": max(answer["wrong"] for answer in answers), "calls": answers[0]["calls"]}
    if collective != "split":
        done["algbw"] = answers[0]["bytes"] / us / 1000
        done["busbw"] = done["algbw"] * factor(ranks)
    if "seen_us" in answers[0]:
        done["seen_us"], done["heap_per_size"] = middle("seen_us"), middle("heap_per_size")
    return done


def measure_first_calls(options, programs):
    program = os.path.join(programs, "first_calls")
    kinds = [k for k in KINDS_OF_CALL if k in options.collectives] if options.collectives_given else KINDS_OF_CALL
    size = str((options.sizes or [8192])[0])
    samples = {}
    for _ in range(1 if options.quick else 3):
        for ranks in options.ranks if options.ranks_given else (8, 64, 256):
            for kind in kinds:
                samples.setdefault((ranks, kind), []).extend(run_program([program, str(ranks), kind, size], 120))
    return [{"ranks": ranks, "collective": kind, **{key: statistics.median(r[key] for r in runs) for key in ("bytes", "us", "later_us", "heap", "resident", "peak")},
             "wrong": max(r["wrong"] for r in runs), "us_all": [r["us"] for r in runs]} for (ranks, kind), runs in samples.items()]


def measure_reductions(options, programs):
    program, found = os.path.join(programs, "reductions"), []
    rounds, budget = str(options.path_rounds), str(options.budget_ms / 2)
    sizes = lambda usual: ",".join(map(str, options.sizes or usual))
    if options.rows & {29, 30, 33}:
        for ranks in options.ranks if options.ranks_given else (2, 8):
            usual = [256 << 10] if options.quick else [8 << 10, 256 << 10, 4 << 20]
            found += [{"mode": "ops", **r} for r in run_program([program, "ops", str(ranks), sizes(usual), rounds, budget], 600)]
    if 31 in options.rows:
        for ranks in options.ranks if options.ranks_given else (8,):
            found += [{"mode": "levels", **r} for r in run_program([program, "levels", str(ranks), sizes([4 << 20]), rounds, budget], 600)]
    return found


def measure_waiters(options, programs):
    samples = {}
    for _ in range(1 if options.quick else 3):
        for p in run_program([os.path.join(programs, "waiters"), "100" if options.quick else "300", str((options.sizes or [8192])[0])], 120):
            samples.setdefault(p["what"], []).append(p)
    return [{"collective": what, "ranks": 2, "bytes": runs[0]["bytes"], **{key: statistics.median(r[key] for r in runs) for key in ("us", "us_p99", "first_us")},
             "wrong": max(r["wrong"] for r in runs), "us_all": [r["us"] for r in runs]} for what, runs in samples.items()]


def measure_all(options, programs, troupe, logs, commands):
    data = {}
    for rows, name, action in (({21, 22, 23, 24, 25, 26, 28, 32}, "paths", lambda: measure_races(options, programs, logs, commands)),
                               ({27}, "first_calls", lambda: measure_first_calls(options, programs)),
                               ({29, 30, 31, 33}, "reductions", lambda: measure_reductions(options, programs)),
                               ({34}, "waiters", lambda: measure_waiters(options, programs)),
                               ({35}, "nbc", lambda: nbc.measure(options, programs)),
                               ({36}, "mlp", lambda: mlp.measure(options, programs, troupe)),
                               ({37}, "experts", lambda: experts.measure(options, programs))):
        if not options.rows & rows:
            continue
        try:
            data[name] = action()
        except Failed as problem:
            print(f"bench: {name}: {problem}")
            data[name] = {"failed": str(problem)}
    return data


# -- verdicts ---------------------------------------------------------------------------------------------------------

def judge(data):
    """Rows for the target table, in the shape of tables.targets()."""
    rows = []
    for name, action in (("paths", judge_races), ("first_calls", judge_first_calls), ("reductions", judge_reductions), ("waiters", judge_waiters),
                         ("nbc", lambda found: nbc.judge(found, verdict_of)), ("mlp", lambda found: mlp.judge(found, verdict_of)), ("experts", lambda found: experts.judge(found, verdict_of))):
        found = data.get(name)
        if isinstance(found, dict):
            row = {"paths": "21", "first_calls": "27", "reductions": "29", "waiters": "34", "nbc": "35", "mlp": "36", "experts": "37"}[name]
            rows.append({"row": row, "what": name, "target": "–", "points": 0, "verdict": "failed: " + found["failed"]})
        elif found:
            rows += action(found)
    return sorted(rows, key=lambda row: int(row["row"]))


def verdict_of(row, what, target, each, ratios, mean=None):
    """ratios: [(value, where)]; every one must be at most `each`, and their geometric mean at most `mean`."""
    if not ratios:
        return {"row": str(row), "what": what, "target": target, "points": 0, "verdict": "not measured"}
    worst, where = max(ratios, key=lambda pair: pair[0])
    above = sum(value > each for value, _ in ratios)
    verdict = "met" if not above else f"missed: by {worst / each:.2f}×" if len(ratios) == 1 else \
        f"missed: {above} of {len(ratios)} above {each:g}, the worst by {worst / each:.2f}×"
    done = {"row": str(row), "what": what, "target": target, "points": len(ratios), "worst": worst, "worst_at": where, "above": above, "verdict": verdict}
    if len(ratios) > 1 and all(value > 0 for value, _ in ratios):
        done["geometric_mean"] = geometric_mean([value for value, _ in ratios])
        if mean and done["geometric_mean"] > mean:
            done["verdict"] = ("missed: " if verdict == "met" else verdict + "; ") + f"mean by {done['geometric_mean'] / mean:.2f}×"
    return done


def size_name(p):
    return p["variant"] if p["collective"] == "split" else human(p["bytes"])


class Measured:
    def __init__(self, found):
        self.all = found
        self.by_key = {self.key(p, p["contender"]): p for p in found}

    @staticmethod
    def key(p, contender):
        return p["row"], p["ranks"], p["collective"], p["asked"], p["variant"], contender

    def peer(self, p, contender):
        return self.by_key.get(self.key(p, contender))

    def of(self, row, contender="troupe", **same):
        return [p for p in self.all if p["row"] == row and p["contender"] == contender and all(p[k] == v for k, v in same.items())]

    def ratios(self, ours, peer="openmpi"):
        pairs = [(p, self.peer(p, peer)) for p in ours]
        return [(p["us"] / other["us"], f"{p['collective']} {size_name(p)}, {p['ranks']} ranks: {p['us']:.3g} µs against {other['us']:.3g}")
                for p, other in pairs if other]


def beside_peer(measured, p):
    other = measured.peer(p, "openmpi")
    return f"; Open MPI {other['us']:.3g}" if other else ""


def judge_races(found):
    m, rows = Measured(found), []
    for (who, ranks), target in MAILBOX_TARGETS.items():
        by = f"{ranks} ranks" if who == "troupe" else f"one thread drives {ranks} ranks"
        rows += [verdict_of(21, f"8 B all_reduce by mailbox, {by}: µs / {target}", f"≤ {target} µs", 1,
                            [(p["us"] / target, f"{p['us']:.3g} µs{beside_peer(m, p)}")]) for p in m.of(21, who, ranks=ranks)]
    races = [(22, "send → recv, half a round trip, 2 ranks", {}), (23, "send_recv round a ring", {}), (24, "v-forms, counts the same in every call", {"variant": "same counts"}),
             (24, "v-forms, fresh counts in every call", {"variant": "fresh counts"}), (26, "split", {}),
             (32, "broadcast, reduce, gather, scatter ≤ 64 B, root moves on", {"variant": "root moves on"}),
             (32, "broadcast, reduce, gather, scatter ≤ 64 B, root 0", {"variant": "root 0"})]
    for row, what, same in races:
        for ranks in sorted({p["ranks"] for p in m.of(row, **same)}):
            rows.append(verdict_of(row, what + (f", {ranks} ranks" if row != 22 else "") + " / Open MPI", "each ≤ 1", 1.0, m.ratios(m.of(row, ranks=ranks, **same))))
    for who in ("troupe", "troupe-group"):
        for p in m.of(25, who):
            by = f"{p['ranks']} ranks" if who == "troupe" else f"one thread drives {p['ranks']} ranks"
            where = f"{p['us']:.3g} µs against {p['seen_us']:.3g}{beside_peer(m, p)}"
            rows.append(verdict_of(25, f"all_reduce of a size not seen before, around {human(p['asked'])}, {by} / seen before", "≤ 1.2", 1.2, [(p["us"] / p["seen_us"], where)]))
            rows.append(verdict_of(25, f"the same, {by}: heap for each new size, B", "flat: ≤ 16", 16, [(max(p["heap_per_size"], 0), f"{p['heap_per_size']:.0f} B")]))
        counts = sorted((p["ranks"], p) for p in m.of(28, who))
        steps = [(b["us"] / a["us"], f"{na} → {nb} ranks: {a['us']:.4g} → {b['us']:.4g} µs{beside_peer(m, b)}")
                 for (na, a), (nb, b) in zip(counts, counts[1:]) if nb == 2 * na]
        if counts:
            rows.append(verdict_of(28, "8 B all_reduce, " + ("a thread for each rank" if who == "troupe" else "one thread drives all ranks") + ": 2n ranks / n ranks", "each ≤ 2.5", 2.5, steps))
    return rows


def judge_first_calls(found):
    rows = []
    for ranks, target in FIRST_CALL_TARGETS.items():
        here = [(p["us"] / target, f"{p['collective']}: {p['us'] / 1000:.3g} ms") for p in found if p["ranks"] == ranks]
        if here:
            rows.append(verdict_of(27, f"first call of a kind, {ranks} ranks: µs / {target}", f"each ≤ {target / 1000:g} ms", 1, here))
    memory = [(p["peak"] / FIRST_CALL_MEMORY, f"{p['collective']}, {p['ranks']} ranks: {p['peak'] / (1 << 20):.1f} MiB") for p in found]
    return rows + [verdict_of(27, "first call of a kind: most memory while it runs / 50 MiB", "each ≤ 50 MiB", 1, memory)]


def judge_reductions(found):
    key = lambda p: (p["collective"], p["ranks"], p["bytes"], p["type"])
    by_op = {(*key(p), p["redop"]): p["us"] for p in found if p["mode"] == "ops"}
    rows = []

    def where(k):
        return f"{k[0]} {human(k[2])} {k[3]}, {k[1]} ranks"

    def over_sum(row, redop, each):
        ratios = [(us / by_op[(*k, "sum")], f"{where(k)}: {us:.3g} µs against {by_op[(*k, 'sum')]:.3g}") for (*k, op), us in by_op.items() if op == redop]
        return verdict_of(row, f"{redop} / sum, every type", f"each ≤ {each:g}", each, ratios)

    if by_op:
        rows += [over_sum(29, "avg", 1.15), over_sum(30, "pre_mul_sum", 1.25)]
        f8 = [(us / by_op[(*k[:3], "f16", "sum")], f"{where(k)}: {us:.3g} µs") for (*k, op), us in by_op.items()
              if op == "sum" and k[3].startswith("f8") and (*k[:3], "f16", "sum") in by_op]
        rows.append(verdict_of(33, "sum of f8 / sum of f16, of as many bytes", "each ≤ 2", 2, f8))
    levels = {}
    for p in found:
        if p["mode"] == "levels":
            levels.setdefault(key(p), []).append(p)  # from the weakest to the strongest
    ratios = []
    for k, chain in levels.items():
        for i, p in enumerate(chain[:-1]):
            strong = min(chain[i + 1:], key=lambda q: q["us"])
            ratios.append((p["us"] / strong["us"], f"{where(k)}: {p['level']} {p['us']:.4g} µs, {strong['level']} {strong['us']:.4g}"))
    if ratios:
        rows.append(verdict_of(31, "a level of determinism / the fastest stronger one", "each ≤ 1; a tenth for noise", 1.1, ratios))
    return rows


def judge_waiters(found):
    ratios = [(p["us"] / WAITERS_TARGET, f"{p['collective']}: {p['us']:.3g} µs, p99 {p['us_p99']:.3g}") for p in found if "alone" not in p["collective"]]
    return [verdict_of(34, f"two threads wait for different requests of one rank: the second one's wait after the end, µs / {WAITERS_TARGET}", f"each ≤ {WAITERS_TARGET} µs", 1, ratios)]


def wrong(data):
    """One sentence for each wrong result."""
    found = []
    for name in ("paths", "first_calls", "reductions", "waiters", "nbc", "mlp", "experts"):
        for p in data.get(name, []) if isinstance(data.get(name), list) else []:
            if p["wrong"]:
                found.append(f"{p.get('contender', 'troupe')} {p['collective']} {human(int(p['bytes']))} {p.get('variant', '')} {p.get('type', '')} {p.get('redop', '')}, "
                             f"{p['ranks']} ranks: {p['wrong']:.0f} elements")
    return found


# -- tables -----------------------------------------------------------------------------------------------------------

def table(head, lines):
    return "\n".join(["| " + " | ".join(head) + " |", "| --- " * len(head) + "|", *("| " + " | ".join(cells) + " |" for cells in lines)])


def race_tables(found):
    m, parts = Measured(found), []
    number = lambda p, key="us": f"{p[key]:.4g}" if p else "–"
    for row in sorted({p["row"] for p in found}):
        here = [p for p in found if p["row"] == row]
        who = [c for c in ("troupe-processes", "troupe-shared", "troupe", "troupe-group", *PEERS, "limit-sockets") if any(p["contender"] == c for p in here)]
        peers = [c for c in who[1:] if not c.startswith("troupe-")] if who[0] in ("troupe", "troupe-processes", "troupe-shared") else []  # who[0]: ours
        keys = list(dict.fromkeys((p["ranks"], p["collective"], p["asked"], p["variant"]) for p in sorted(
            here, key=lambda p: (p["ranks"], p["collective"], p["variant"], p["asked"]))))
        seen = row == 25
        head = ["ranks", "operation", "size", "variant", *[f"{c} µs" for c in who], *([f"{c}, seen before" for c in who] if seen else []),
                *([f"{c}, heap B a size" for c in who] if seen else []), *[f"{who[0]} / {c}" for c in peers], "busbw GB/s"]
        lines = []
        for ranks, collective, asked, variant in keys:
            of = {c: next((p for p in here if (p["contender"], p["ranks"], p["collective"], p["asked"], p["variant"]) == (c, ranks, collective, asked, variant)), None)
                  for c in who}
            first = next(p for p in of.values() if p)
            ours = of[who[0]]
            cells = [str(ranks), collective, "–" if collective == "split" else human(first["bytes"]), variant or "–", *[number(of[c]) for c in who]]
            if seen:
                cells += [number(of[c], "seen_us") for c in who] + [number(of[c], "heap_per_size") for c in who]
            cells += [ratio(ours["us"] / of[c]["us"]) if ours and of[c] else "–" for c in peers]
            cells.append(f"{ours['busbw']:.3g}" if ours and "busbw" in ours else "–")
            lines.append(cells)
        parts.append(f"### Row {row}: {ROWS.get(row, here[0]['variant'] or 'processes')}, µs\n\n" + table(head, lines))
    return parts


def detail_tables(data):
    parts = race_tables(data["paths"]) if isinstance(data.get("paths"), list) and data["paths"] else []
    first = data.get("first_calls")
    if isinstance(first, list) and first:
        parts.append("### Row 27: the first call of a kind, one thread drives all ranks\n\n" + table(
            ["collective", "ranks", "first ms", "later µs", "heap KiB", "resident KiB", "peak KiB"],
            [[p["collective"], str(p["ranks"]), f"{p['us'] / 1000:.3g}", f"{p['later_us']:.4g}", *[f"{p[k] / 1024:.0f}" for k in ("heap", "resident", "peak")]]
             for p in sorted(first, key=lambda p: (p["collective"], p["ranks"]))]))
    waiters = data.get("waiters")
    if isinstance(waiters, list) and waiters:
        parts.append("### Row 34: two threads wait for different requests of one rank, µs from the end to the return\n\n" + table(
            ["operation", "size", "second", "p99", "first"],
            [[p["collective"], human(int(p["bytes"])), f"{p['us']:.3g}", f"{p['us_p99']:.3g}", f"{p['first_us']:.3g}" if p["first_us"] else "–"] for p in waiters]))
    if isinstance(data.get("nbc"), list) and data["nbc"]:
        parts.append(nbc.table(data["nbc"], table))
    if isinstance(data.get("experts"), list) and data["experts"]:
        parts.append(experts.table(data["experts"], table))
    if isinstance(data.get("mlp"), list) and data["mlp"]:
        parts.append(mlp.table(data["mlp"], table))
    reductions = data.get("reductions")
    if isinstance(reductions, list) and reductions:
        for mode, column, title in (("ops", "redop", "Rows 29, 30, 33: by operation"), ("levels", "level", "Row 31: by level of determinism")):
            here = [p for p in reductions if p["mode"] == mode]
            names = list(dict.fromkeys(p[column] for p in here))
            cells = {}
            for p in here:
                cells.setdefault((p["collective"], p["ranks"], p["bytes"], p["type"]), {})[p[column]] = p["us"]
            if here:
                parts.append(f"### {title}, µs\n\n" + table(
                    ["collective", "ranks", "size", "type", *names, *[f"{n} / {names[0]}" for n in names[1:]]],
                    [[c, str(n), human(size), kind, *[f"{of[name]:.4g}" for name in names], *[ratio(of[name] / of[names[0]]) for name in names[1:]]]
                     for (c, n, size, kind), of in cells.items()]))
    return "\n\n".join(parts)
