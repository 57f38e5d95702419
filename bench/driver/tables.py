# SPDX-License-Identifier: Apache-2.0
"""From measured points to the tables: ratios, geometric means, targets."""

import math
import statistics

BUSBW = {"all_reduce": lambda n: 2 * (n - 1) / n, "broadcast": lambda n: 1, "reduce": lambda n: 1}
BLOCKS = lambda n: (n - 1) / n  # all_gather, reduce_scatter, all_to_all


def human(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def ratio(value):
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def summarise(samples, fixed_root):
    """samples: (contender, ranks, collective, asked bytes) -> answers. Returns points, one per key, with nccl-tests' bandwidths.
    root: as in nccl-tests, -1 where there is none; null where it moves on."""
    points = []
    for (contender, ranks, collective, asked), answers in sorted(samples.items()):
        times = [answer["us"] for answer in answers]
        us = statistics.median(times)
        first = answers[0]
        root = -1 if collective not in ("broadcast", "reduce") else 0 if fixed_root else None
        algbw = first["bytes"] / us / 1000  # bytes per µs / 1000 = GB/s
        points.append({
            "contender": contender, "ranks": ranks, "collective": collective, "asked": asked, "bytes": first["bytes"],
            "count": first["count"], "type": "f32", "redop": "sum", "root": root, "us": us, "us_all": times,
            "algbw": algbw, "busbw": algbw * BUSBW.get(collective, BLOCKS)(ranks),
            "wrong": max(answer["wrong"] for answer in answers), "calls": first["calls"], "sets": first["sets"],
            "note": first["note"]})
    return points


class Points:
    def __init__(self, points):
        self.all = points
        self.by_key = {(p["contender"], p["ranks"], p["collective"], p["asked"]): p for p in points}

    def ratios(self, ours, peer, ranks, keep=lambda p: True):
        """[(ratio, point of ours)] where both were measured."""
        found = []
        for p in self.all:
            if p["contender"] != ours or p["ranks"] not in ranks or not keep(p):
                continue
            other = self.by_key.get((peer, p["ranks"], p["collective"], p["asked"]))
            if other:
                found.append((p["us"] / other["us"], p))
        return found

    def contenders(self, ranks):
        order = ["troupe", "troupe-async", "troupe-group", "troupe-persistent", "openmpi", "mpich", "gloo", "limit"]
        return [c for c in order if any(p["contender"] == c and p["ranks"] == ranks for p in self.all)]


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else float("nan")


def targets(points):
    """The rows of the target table that this run can judge: dicts of row, what, target, measured, verdict."""
    eight = lambda p: p["collective"] == "all_reduce" and p["asked"] == 8
    large = lambda p: p["collective"] == "all_reduce" and p["asked"] >= 256 << 10
    specification = [
        ("1", "2 ranks, threads, blocking / Open MPI", "troupe", "openmpi", (2,), None, 1.0, 0.45),
        ("1", "2 ranks, threads, blocking / MPICH", "troupe", "mpich", (2,), None, 1.0, 0.45),
        ("2", "4 and 8 ranks, threads, blocking / Open MPI", "troupe", "openmpi", (4, 8), None, 1.0, 0.33),
        ("3", "8 B all_reduce, one thread drives 8 ranks, a group of fresh operations / Open MPI, 8 processes", "troupe-group", "openmpi", (8,), eight, 0.15, None),
        ("3", "the same, persistent operations / Open MPI, 8 processes", "troupe-persistent", "openmpi", (8,), eight, 0.15, None),
        ("4", "all_reduce ≥ 256 KiB, 2, 4 and 8 ranks / limit", "troupe", "limit", (2, 4, 8), large, 1.3, None),
        ("5", "8 B all_reduce, 2 ranks / flag exchange", "troupe", "limit", (2,), eight, 2.0, None),
    ]
    rows = []
    for row, what, ours, peer, ranks, keep, each, mean in specification:
        found = points.ratios(ours, peer, ranks, keep or (lambda p: True))
        target = f"each ≤ {each:g}" + (f"; geometric mean ≤ {mean:g}" if mean else "")
        missing = [n for n in ranks if not any(p["ranks"] == n for _, p in found)]
        if not found:
            rows.append({"row": row, "what": what, "target": target, "points": 0, "verdict": "not measured"})
            continue
        worst, where = max(found, key=lambda pair: pair[0])
        middle = geometric_mean([ratio for ratio, _ in found])
        above = sum(ratio > each for ratio, _ in found)
        misses = []
        if above:
            misses.append(f"{above} of {len(found)} above {each:g}, the worst by {worst / each:.2f}×")
        if mean and middle > mean:
            misses.append(f"mean by {middle / mean:.2f}×")
        verdict = "missed: " + "; ".join(misses) if misses else "met"
        if missing:
            verdict += f" (not measured: {', '.join(map(str, missing))} ranks)"
        rows.append({"row": row, "what": what, "target": target, "points": len(found), "worst": worst, "geometric_mean": middle,
                     "worst_at": f"{where['collective']} {human(where['bytes'])}, {where['ranks']} ranks", "above": above,
                     "verdict": verdict})
    return rows


def target_table(rows):
    lines = ["| # | ours / peer | target | points | worst | at | geometric mean | verdict |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        worst = f"{r['worst']:.2f}" if "worst" in r else "–"
        mean = f"{r['geometric_mean']:.2f}" if "geometric_mean" in r else "–"
        lines.append(f"| {r['row']} | {r['what']} | {r['target']} | {r['points']} | {worst} | {r.get('worst_at', '–')} | {mean} | {r['verdict']} |")
    return "\n".join(lines)


def ratio_table(points):
    """Geometric mean (and worst) of ours/peer for each collective."""
    lines = ["| ranks | collective | peer | geometric mean | worst | at | points above 1 |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for ranks in sorted({p["ranks"] for p in points.all}):
        for collective in dict.fromkeys(p["collective"] for p in points.all):
            for peer in ("openmpi", "mpich", "gloo", "limit"):
                found = points.ratios("troupe", peer, (ranks,), lambda p: p["collective"] == collective)
                if found:
                    worst, where = max(found, key=lambda pair: pair[0])
                    lines.append(f"| {ranks} | {collective} | {peer} | {ratio(geometric_mean([r for r, _ in found]))} | {ratio(worst)} | "
                                 f"{human(where['bytes'])} | {sum(r > 1 for r, _ in found)} of {len(found)} |")
    return "\n".join(lines)


def point_tables(points):
    """µs of every contender at every point, our bus bandwidth, and ours/peer."""
    parts = []
    for ranks in sorted({p["ranks"] for p in points.all}):
        who = points.contenders(ranks)
        peers = [c for c in who if c in ("openmpi", "mpich", "gloo", "limit")] if "troupe" in who else []
        for collective in dict.fromkeys(p["collective"] for p in points.all if p["ranks"] == ranks):
            head = ["size", *[f"{c} µs" for c in who], *[f"/ {c}" for c in peers], *(["busbw GB/s"] if peers else [])]
            lines = [f"### {collective}, {ranks} ranks", "", "| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
            for asked in sorted({p["asked"] for p in points.all if (p["ranks"], p["collective"]) == (ranks, collective)}):
                here = {c: points.by_key.get((c, ranks, collective, asked)) for c in who}
                any_point = next(p for p in here.values() if p)
                cells = [human(any_point["bytes"])]
                cells += [f"{here[c]['us']:.4g}" if here[c] else "–" for c in who]
                ours = here.get("troupe")
                cells += [ratio(ours["us"] / here[c]["us"]) if ours and here[c] else "–" for c in peers]
                if peers:
                    cells.append(f"{ours['busbw']:.3g}" if ours else "–")
                lines.append("| " + " | ".join(cells) + " |")
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def noise(points):
    """Median over all points of (slowest − fastest repetition) / median: how far to trust a single ratio."""
    spreads = [(max(p["us_all"]) - min(p["us_all"])) / p["us"] for p in points.all if len(p["us_all"]) > 1]
    return statistics.median(spreads) if spreads else float("nan")
