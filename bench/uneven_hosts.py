#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""all_to_all_v between hosts, by uneven counts that are others in every matrix: python3 bench/uneven_hosts.py --help.

Network namespaces, joined by a bridge, each with a wire of so many Mbit/s in either direction (tc, tbf), slow enough that the cores are not what counts.
A time is said as a multiple of the least that there can be: what the busiest rank sends or receives, at the wire's rate. With --bare the same by plain
sockets, in four orders: what an order of peers could buy. Needs root, ip(8), tc(8)."""

import argparse
import collections
import json
import os
import random
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench", "driver"))
from hosts import Hosts, INTERFACE, rows_of  # noqa: E402

UNIT = 1024
TOKENS = (412, 89, 301, 174)  # spec of all-to-all, "imbalance"


# -- counts, in KiB; nothing for oneself --

def balanced(p, mean, rng):
    """All send and receive as much, cut at random."""
    m = [[0] * p for _ in range(p)]
    for _ in range(2 * p):
        to = rng.sample(range(p), p)
        for s in range(p):
            m[s][to[s]] += mean // 2
    return m


def by_receiver(p, mean, rng):
    turn = rng.randrange(4)
    weights = [TOKENS[(d + turn) % 4] for d in range(p)]
    return [[w * p * mean // sum(weights) for w in weights] for _ in range(p)]


def skewed(p, mean, rng):
    """Receivers as above, and each sender otherwise."""
    rows = []
    for _ in range(p):
        weights = [TOKENS[d % 4] * rng.random() for d in range(p)]
        rows.append([int(w * p * mean / sum(weights)) for w in weights])
    return rows


def least(m):
    p = range(len(m))
    return max(max(sum(m[s]) for s in p), max(sum(m[s][d] for s in p) for d in p)) * UNIT


# -- orders for plain sockets: by sender, pieces (to, KiB) one after the other; None: to all at once --

def at_once(m, piece):
    return None


def by_distance(m, piece):
    p = len(m)
    return [[((s + k) % p, m[s][(s + k) % p]) for k in range(1, p) if m[s][(s + k) % p]] for s in range(p)]


def largest_first(m, piece):
    return [sorted(row, key=lambda one: -one[1]) for row in by_distance(m, piece)]


def all_known(m, piece):
    """Everybody knows all counts: each round pieces for different receivers, those with most left first."""
    p, left = len(m), [row[:] for row in m]
    order = [[] for _ in range(p)]
    while any(map(any, left)):
        row, col = [sum(r) for r in left], [sum(c) for c in zip(*left)]
        taken = {}

        def find(s, seen):
            for d in sorted((d for d in range(p) if left[s][d]), key=lambda d: (-col[d], -left[s][d])):
                if d not in seen:
                    seen.add(d)
                    if d not in taken or find(taken[d], seen):
                        taken[d] = s
                        return True
            return False
        for s in sorted(range(p), key=lambda s: -row[s]):
            find(s, set())
        for d, s in taken.items():
            n = min(piece, left[s][d])
            left[s][d] -= n
            order[s].append((d, n))
    return order


BARE = r'''
import json, socket, sys, threading, time
me, p = int(sys.argv[1]), int(sys.argv[2])
jobs = json.loads(sys.stdin.readline())
listens = socket.create_server((sys.argv[3 + me], 5700), backlog=64)
to = {}
def accept():
    while len([k for k in to if k < me]) < me:
        c, _ = listens.accept(); to[c.recv(1)[0]] = c
a = threading.Thread(target=accept); a.start()
time.sleep(1)
for q in range(me + 1, p):
    to[q] = socket.create_connection((sys.argv[3 + q], 5700)); to[q].sendall(bytes([me]))
a.join()
for c in to.values():
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 19)
def read(c, n):
    b = bytearray(1 << 18)
    while n: n -= c.recv_into(b, min(n, len(b)))
def meet():
    for c in to.values(): c.sendall(b"x")
    for c in to.values(): read(c, 1)
def send(pieces):
    for d, n in pieces: to[d].sendall(bytes(n * 1024))
took = []
for m, order in jobs:
    each = []
    for _ in range(4):
        meet(); meet()
        t = time.time()
        all = [threading.Thread(target=read, args=(c, m[q][me] * 1024)) for q, c in to.items()]
        if order: all.append(threading.Thread(target=send, args=(order[me],)))
        else: all += [threading.Thread(target=send, args=([(q, m[me][q])],)) for q in to]
        for x in all: x.start()
        for x in all: x.join()
        meet()
        each.append(time.time() - t)
    took.append(sum(each[1:]) / 3)
if me == 0: print(json.dumps(took))
'''


def bare(hosts, jobs):
    """Seconds of each (matrix, order)."""
    addresses = [Hosts.address(h) for h in range(hosts.count)]
    each = [subprocess.Popen(["ip", "netns", "exec", hosts.name(h), sys.executable, "-c", BARE, str(h), str(hosts.count), *addresses],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for h in range(hosts.count)]
    for one in each:
        one.stdin.write(json.dumps(jobs) + "\n")
        one.stdin.flush()
    took = json.loads(each[0].communicate(timeout=600)[0])
    for one in each[1:]:
        one.wait()
    return took


def by_troupe(hosts, troupe, o, matrices):
    """Seconds of each matrix."""
    path, out = os.path.join(hosts.folder, "counts.toml"), os.path.join(hosts.folder, "rows.json")
    with open(path, "w") as file:
        file.write(f"[workload]\niterations = 3\nranks = {hosts.count}\n")
        for m in matrices:
            file.write(f'[[workload.run]]\ncollective = "all_to_all_v"\nunit = {UNIT // 4}\ncounts = {m}\n')
            if o.choreography:
                file.write(f'choreography = "{o.choreography}"\n')
    more = [word for one in o.set for word in ("--set", one)]
    words = hosts.troupe(troupe, [troupe, "run", path, "--json", out, *more], 1)
    return [row["time_us"] * 1e-6 for row in rows_of(words, out, {"TROUPE_INTERFACE": INTERFACE}, 600)]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--troupe", action="append", default=[], help="the program; several: in turn")
    a.add_argument("--hosts", type=int, default=8)
    a.add_argument("--rate", type=int, default=200, help="Mbit/s of a wire")
    a.add_argument("--buffer", default="100ms", help="what waits at most before a wire")
    a.add_argument("--mean", type=int, default=512, help="KiB that a rank has for another one on the average")
    a.add_argument("--matrices", type=int, default=3, help="of each kind")
    a.add_argument("--rounds", type=int, default=1)
    a.add_argument("--choreography", default="")
    a.add_argument("--bare", action="store_true", help="plain sockets alone")
    a.add_argument("--seed", type=int, default=3)
    a.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further options of the engine")
    o = a.parse_args()
    programs = o.troupe or [os.path.join(ROOT, "build", "release", "troupe")]
    kinds, rng = (balanced, by_receiver, skewed), random.Random(o.seed)
    cases = [(kind.__name__, kind(o.hosts, o.mean, rng)) for _ in range(o.matrices) for kind in kinds]
    for _, m in cases:
        for s in range(o.hosts):
            m[s][s] = 0
    orders = (at_once, by_distance, largest_first, all_known)
    columns = [order.__name__ for order in orders] if o.bare else programs
    found = collections.defaultdict(list)
    with Hosts(o.hosts) as hosts:
        for h in range(o.hosts):
            for where, device in ((hosts.name(h), INTERFACE), (hosts.prefix + "b", f"p{h}")):
                subprocess.run(["ip", "netns", "exec", where, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{o.rate}mbit",
                                "burst", "128kb", "latency", o.buffer], check=True)
        for turn in range(o.rounds):
            if o.bare:
                took = bare(hosts, [(m, order(m, 256)) for _, m in cases for order in orders])
                for k, seconds in enumerate(took):
                    kind, m = cases[k // len(orders)]
                    found[kind, columns[k % len(orders)]].append(seconds * o.rate * 125e3 / least(m))
                continue
            for k in range(len(programs)):
                program = programs[(k + turn) % len(programs)]
                for (kind, m), seconds in zip(cases, by_troupe(hosts, program, o, [m for _, m in cases])):
                    found[kind, program].append(seconds * o.rate * 125e3 / least(m))
    print("| time / least | " + " | ".join(columns) + " |\n" + "| --- " * (len(columns) + 1) + "|")
    for kind in kinds:
        print(f"| {kind.__name__} | " + " | ".join(f"{statistics.geometric_mean(found[kind.__name__, c]):.2f}" for c in columns) + " |")


if __name__ == "__main__":
    main()
