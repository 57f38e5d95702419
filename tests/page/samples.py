# SPDX-License-Identifier: Apache-2.0
"""Study documents for the tests of the page: ring, hierarchical and pairwise choreographies in an α/β model of their own.

    python3 samples.py FOLDER      writes every sample as FOLDER/NAME.json

A message leaves when its sender holds the data, the sender's engine is free and every link of its way is free; it takes α + bytes·β
of the slowest link; what has come is reduced at γ per byte. Only the page's tests use this; it is no model of any hardware.
"""
import heapq, json, pathlib, sys

KINDS = ["send", "reduce", "copy", "wait_chunk", "wait_credit", "occupy", "launch", "sync", "compute"]
SEND, REDUCE, COPY, WAIT_CHUNK, WAIT_CREDIT, OCCUPY, LAUNCH, SYNC, COMPUTE = range(9)


class Link:
    def __init__(self, name, kind, alpha_ps, ps_per_byte):
        self.name, self.kind, self.alpha, self.beta, self.free = name, kind, alpha_ps, ps_per_byte, 0
        self.last = None


class Message:
    """needs: indices of messages that must have been received by the sender before."""
    def __init__(self, sender, receiver, cell, size, reduces, needs):
        self.sender, self.receiver, self.cell, self.size, self.reduces, self.needs = sender, receiver, cell, size, reduces, needs


def simulate(ranks, messages, way, gamma=0.01, overhead=400_000, launch=2_000_000):
    """messages in an order in which every rank can send them; way(m) -> links. Returns spans, moves, links used, done, causes."""
    links, spans, moves = [], [], []
    rank_free = [launch] * ranks
    send_free = [launch] * ranks
    done, cause = [0] * len(messages), [None] * len(messages)
    waiting = [[] for _ in range(ranks)]
    for i, m in enumerate(messages):
        waiting[m.sender].append(i)
    heads = [0] * ranks
    last_sent = [None] * ranks
    finished = [False] * len(messages)
    ready = [(launch, r) for r in range(ranks)]
    heapq.heapify(ready)
    events = {}
    for r in range(ranks):
        spans.append((("rank", r), 0, launch, LAUNCH, -1, -1, 0, -1))
    blocked = {}
    while ready:
        now, r = heapq.heappop(ready)
        if heads[r] >= len(waiting[r]):
            continue
        i = waiting[r][heads[r]]
        m = messages[i]
        missing = [n for n in m.needs if not finished[n]]
        if missing:
            blocked.setdefault(missing[0], []).append(r)
            continue
        data = max([done[n] for n in m.needs], default=launch)
        begin = max(data, send_free[r])
        route = way(m)
        held_by = None
        gate = max((link for link in route), key=lambda link: link.free)
        start = max(begin, gate.free)
        if data > send_free[r] and m.needs:
            spans.append((("rank", r), send_free[r], data, WAIT_CHUNK, messages[max(m.needs, key=lambda n: done[n])].sender, r, 0, -1))
        if start > begin:
            spans.append((("rank", r), begin, start, WAIT_CREDIT, r, m.receiver, m.size, i))
        slow = max(link.beta for link in route)
        alpha = sum(link.alpha for link in route)
        arrive = start + int(alpha + m.size * slow)
        for link in route:
            if link not in links:
                links.append(link)
            busy = start + int(link.alpha + m.size * slow)
            spans.append((link, start, busy, OCCUPY, r, m.receiver, m.size, i))
            link.free = busy
            held_by, link.last = link.last, i
        send_free[r] = start + overhead + int(m.size * slow)
        spans.append((("rank", r), start, send_free[r], SEND, r, m.receiver, m.size, i))
        done[i] = arrive
        if m.reduces:
            done[i] = arrive + int(m.size * gamma * 1000)
            spans.append((("rank", m.receiver), arrive, done[i], REDUCE, r, m.receiver, m.size, i))
        finished[i] = True
        before = max(m.needs, key=lambda n: done[n]) if m.needs and data == start else held_by if start > begin else last_sent[r]
        cause[i] = (start, arrive, before, gate)
        last_sent[r] = i
        moves.append([i, r, m.receiver, start, done[i], m.cell[0], m.cell[1], m.size, int(m.reduces)])
        heads[r] += 1
        if heads[r] < len(waiting[r]):
            heapq.heappush(ready, (send_free[r], r))
        for other in blocked.pop(i, []):
            heapq.heappush(ready, (done[i], other))
    assert all(finished), "the sample's messages wait for each other"
    return spans, moves, links, done, cause


def document(title, collective, choreography, ranks, size, blocks, parts, messages, way, scenario, rows, sweeps=(), record=True, preset="sample"):
    spans, moves, links, done, cause = simulate(ranks, messages, way)
    end = max(done)
    actors = [{"name": f"rank {r}", "kind": "rank", "rank": r} for r in range(ranks)]
    index = {("rank", r): r for r in range(ranks)}
    for link in sorted(links, key=lambda l: (l.kind, l.name)):
        index[link] = len(actors)
        actors.append({"name": link.name, "kind": link.kind, "rank": -1})
    flat = [[index[who], *rest] for who, *rest in spans]
    busy, carried = [0] * len(actors), [0] * len(actors)
    for a, b, e, kind, _, _, n, _ in flat:
        if kind not in (WAIT_CHUNK, WAIT_CREDIT):
            busy[a] += e - b
            carried[a] += n if kind in (OCCUPY, SEND) else 0
    next_start = end
    path, at = [], max(range(len(messages)), key=lambda i: done[i])
    while at is not None:
        begin, arrive, before, link = cause[at]
        m = messages[at]
        if m.reduces and done[at] <= next_start:  # else the next one waited for the link, not for the sum
            path.append({"begin_ps": arrive, "end_ps": done[at], "actor": m.receiver, "text": f"rank {m.receiver} reduced {m.size} bytes from rank {m.sender}"})
        path.append({"begin_ps": begin, "end_ps": arrive, "actor": index[link],
                     "text": f"rank {m.receiver} waited {(arrive - begin) / 1e6:.3g} µs for {link.name}"})
        at, next_start = before, begin
    path.reverse()
    if not record:
        flat, moves, path = [], [], []
    return {"troupe_study": 1, "title": title, "scenario": scenario, "collective": collective, "choreography": choreography, "protocol": "simple",
            "preset": preset, "ranks": ranks, "bytes": size, "end_ps": end, "actors": actors, "span_kinds": KINDS, "spans": flat, "moves": moves,
            "blocks": blocks, "parts": parts, "rows": rows(end, messages), "critical_path": path, "sweeps": list(sweeps),
            "utilisation": [{"actor": a, "busy_ps": min(end, busy[a]), "bytes": carried[a], "share": min(1, busy[a] / end)} for a in range(len(actors))]}


def row(size, time_us, factor, bound_us, steps, messages):
    return {"bytes": size, "count": size // 4, "type": "f32", "redop": "sum", "time_us": round(time_us, 4), "algbw": round(size / time_us / 1e3, 4),
            "busbw": round(size * factor / time_us / 1e3, 4), "bound_us": round(bound_us, 4), "steps": steps, "messages": messages}


def ring_messages(ranks, size, slices=1, block=0, parts=None, offset=0):
    """2(n−1) rounds: reduce-scatter, then all-gather, on cells that are parts of one block."""
    out, at = [], {}
    for step in range(2 * ranks - 2):
        for s in range(slices):
            for r in range(ranks):
                part = (r - step) % ranks
                needs = [at[(r, part, s)]] if step else []
                at[((r + 1) % ranks, part, s, "new")] = len(out)
                out.append(Message(r + offset, (r + 1) % ranks + offset, (block, part), max(1, size // ranks // slices), step < ranks - 1, needs))
            for key in [k for k in at if len(k) == 4]:
                at[key[:3]] = at.pop(key)
    return out


def ring(ranks, size, slices=1, beta=0.025, alpha=1_500_000, gamma_title="", **more):
    links = {r: Link(f"link {r}→{(r + 1) % ranks}", "link", alpha, beta * 1000) for r in range(ranks)}
    factor = 2 * (ranks - 1) / ranks

    def rows(end, messages):
        sizes = [size // 64, size // 16, size // 4, size]
        predict = lambda n: 2 * (ranks - 1) * (alpha + n / ranks * (beta * 1000 + 10)) / 1e6 + 2
        scale = end / 1e6 / predict(size)
        return [row(n, end / 1e6 if n == size else predict(n) * scale, factor, n * factor * beta / 1e3 + 2 * (ranks - 1) * alpha / 1e6 / 2, 2 * ranks - 2, len(messages)) for n in sizes]

    scenario = {"study.preset": "sample", "study.layout": f"{ranks}", "workload.ranks": str(ranks), "workload.collective": "all_reduce", "workload.bytes": str(size),
                "engine.choreography": "ring", "engine.protocol": "simple", "links.alpha": f"{alpha / 1e6} us", "links.bandwidth": f"{1 / beta:.0f} GB/s"}
    return document(f"Ring all-reduce on {ranks} ranks{gamma_title}", "all_reduce", "ring", ranks, size, 1, ranks, ring_messages(ranks, size, slices),
                    lambda m: [links[m.sender]], scenario, rows, **more)


def two_level(size, choreography, sweeps=()):
    """2 servers × 4 cards. "ring": one flat ring through both NICs. "hierarchical": ring inside, exchange over the NICs, ring inside."""
    inside = {r: Link(f"server {r // 4} link {r % 4}→{(r + 1) % 4}", "link", 1_500_000, 12) for r in range(8)}
    nic = [Link(f"server {s} NIC", "nic", 6_000_000, 80) for s in range(2)]
    if choreography == "ring":
        messages, parts = ring_messages(8, size), 8
    else:
        parts, messages, last = 4, [], {}
        for server in range(2):
            first = len(messages)
            for m in ring_messages(4, size, offset=4 * server)[:12]:
                m.needs = [n + first for n in m.needs]
                messages.append(m)
            for r in range(4):
                last[4 * server + r] = first + 2 * 4 + (r - 1) % 4
        swap = {}
        for r in range(8):
            swap[(r + 4) % 8] = len(messages)
            messages.append(Message(r, (r + 4) % 8, (0, (r + 1) % 4), size // 4, True, [last[r]]))
        for server in range(2):
            before = {4 * server + r: swap[4 * server + r] for r in range(4)}
            for step in range(3):
                after = {}
                for r in range(4):
                    rank, to = 4 * server + r, 4 * server + (r + 1) % 4
                    after[to] = len(messages)
                    messages.append(Message(rank, to, (0, (r + 1 - step) % 4), size // 4, False, [before[rank]]))
                before = after

    def way(m):
        if m.sender // 4 != m.receiver // 4:
            return [nic[m.sender // 4]]
        return [inside[m.sender]]

    def rows(end, messages):
        bound = size * 1.75 * 12 / 1e6 + size * 80 / 4e6
        return [row(n, end / 1e6 * (0.25 * (size / n) ** 0.0 + 0.75 * n / size), 1.75, bound * n / size + 10, 14, len(messages)) for n in (size // 16, size // 4, size)]

    scenario = {"study.preset": "sample", "study.layout": "2x4", "workload.ranks": "8", "workload.collective": "all_reduce", "workload.bytes": str(size),
                "engine.choreography": choreography, "engine.protocol": "simple", "nic.alpha": "6 us", "nic.bandwidth": "12.5 GB/s"}
    name = {"ring": "Flat ring", "hierarchical": "Hierarchical all-reduce"}[choreography]
    return document(f"{name}, 2 servers of 4 cards", "all_reduce", choreography, 8, size, 1, parts, messages, way, scenario, rows, sweeps)


def pairwise(ranks, size):
    """All-to-all: block i·n + j goes from i to j, one step after the other. Its title tries to break out of the page."""
    port = [Link(f"switch port {r}", "switch", 1_000_000, 40) for r in range(ranks)]
    messages = []
    for step in range(1, ranks):
        for r in range(ranks):
            to = (r + step) % ranks
            messages.append(Message(r, to, (r * ranks + to, 0), size // ranks, False, []))
    rows = lambda end, m: [row(size, end / 1e6, (ranks - 1) / ranks, size * (ranks - 1) / ranks * 40 / 1e6, ranks - 1, len(m))]
    return document("Pairwise </script><script>throw 1</script><!-- & \"quoted\"", "all_to_all", "pairwise", ranks, size, ranks * ranks, 1, messages,
                    lambda m: [port[m.receiver]], {"study.layout": str(ranks), "note": "<b>no markup</b>"}, rows)


def sweep_of_credits():
    points = []
    for credits in (1, 2, 4, 8, 16):
        for size in (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24):
            time = 30 + size * 0.00004 * (1 + 3 / credits)
            points.append({"value": str(credits), "bytes": size, "time_us": round(time, 3), "busbw": round(size * 1.75 / time / 1e3, 3)})
    skew = [{"value": v, "bytes": 1 << 23, "time_us": t, "busbw": round((1 << 23) * 1.75 / t / 1e3, 3)} for v, t in (("0us", 620), ("10us", 640), ("20us", 700), ("50us", 790), ("100us", 901))]
    return [{"key": "engine.credits", "points": points}, {"key": "ranks.skew", "points": skew}]


def samples():
    yield "ring8", ring(8, 1 << 23)
    yield "flat2x4", two_level(1 << 23, "ring")
    yield "hier2x4", two_level(1 << 23, "hierarchical", sweep_of_credits())
    yield "a2a4", pairwise(4, 1 << 20)
    yield "ring64", ring(64, 1 << 24, slices=4, alpha=800_000, gamma_title=", four slices")
    yield "unrecorded", ring(16, 1 << 24, gamma_title=", nothing recorded", record=False)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in samples():
        (folder / f"{name}.json").write_text(json.dumps(made, ensure_ascii=False))
