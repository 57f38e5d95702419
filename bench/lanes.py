#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What several connections between two hosts buy (engine.lanes), and what TLS costs: python3 bench/lanes.py --help.

Two network namespaces, joined by a bridge. Needs root, ip(8), openssl(1)."""

import argparse
import collections
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench", "driver"))
from hosts import Hosts, rows_of  # noqa: E402


def certificates(folder):
    """One for both, in the variables that name it."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-days", "1", "-subj", "/CN=jobs", "-keyout", "authority.key", "-out", "authority.pem")
    openssl("req", *curve, "-subj", "/CN=node", "-keyout", "node.key", "-out", "node.csr")
    openssl("x509", "-req", "-days", "1", "-in", "node.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-out", "node.pem")
    os.chmod(os.path.join(folder, "node.key"), 0o600)
    return {f"TROUPE_ENGINE_TLS_{what}": os.path.join(folder, file)
            for what, file in (("CERTIFICATE", "node.pem"), ("KEY", "node.key"), ("AUTHORITY", "authority.pem"))}


def bare(hosts, connections, size=64 << 20):
    """GB/s of plain sockets from host 1 to 0, in so many connections at once."""
    receive = ("import socket,sys,time,threading\ns=socket.create_server((sys.argv[1],5700))\nn=int(sys.argv[2])\nc=[s.accept()[0] for _ in range(n)]\n"
               "def r(k):\n b=bytearray(1<<20)\n while k.recv_into(b): pass\nt=time.time()\nw=[threading.Thread(target=r,args=(k,)) for k in c]\n"
               "[x.start() for x in w];[x.join() for x in w]\nprint(time.time()-t)\n")
    send = ("import socket,sys,threading\nn=int(sys.argv[2])\nc=[socket.create_connection((sys.argv[1],5700)) for _ in range(n)]\nb=bytes(int(sys.argv[3])//n)\n"
            "def w(k):\n k.sendall(b); k.close()\nt=[threading.Thread(target=w,args=(k,)) for k in c]\n[x.start() for x in t];[x.join() for x in t]\n")

    def on(h, text):
        return subprocess.Popen(["ip", "netns", "exec", hosts.name(h), sys.executable, "-c", text, Hosts.address(0), str(connections), str(size)], stdout=subprocess.PIPE, text=True)
    receiver = on(0, receive)
    time.sleep(0.5)
    sender = on(1, send)
    seconds = float(receiver.communicate(timeout=120)[0])
    sender.wait()
    return size / seconds / 1e9


def measure(o, hosts, lanes, tls, more):
    """µs by (collective, bytes); the files of hosts and results are the job's own."""
    files = os.path.join(hosts.folder, "hosts.toml")
    with open(files, "w") as file:
        for h in range(2):
            file.write(f'[[host]]\naddress = "{Hosts.address(h)}"\nslots = 1\ncommand = ["ip", "netns", "exec", "{hosts.name(h)}", "sh", "-c"]\n')
    out = os.path.join(hosts.folder, "rows.json")
    words = [o.troupe, "launch", "--hosts", files, o.troupe, "bench", "--collective", o.collectives, "-b", o.least, "-e", o.most, "-f", "16",
             "-n", str(o.iterations), "-w", "3", "-J", out, "--set", f"engine.lanes={lanes}", *more]
    rows = rows_of(["ip", "netns", "exec", hosts.name(0), *words], out, {**tls, "TROUPE_INTERFACE": "e0"}, 300)
    return {(row["collective"], row["bytes"]): row["time_us"] for row in rows}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--troupe", default=os.path.join(ROOT, "build", "release", "troupe"), help="the program")
    a.add_argument("--lanes", default="1,2,4")
    a.add_argument("--tls", choices=["both", "no", "yes"], default="both")
    a.add_argument("--collectives", default="send_recv,all_reduce")
    a.add_argument("--least", default="64K")
    a.add_argument("--most", default="16M")
    a.add_argument("--iterations", type=int, default=20)
    a.add_argument("--rounds", type=int, default=5, help="all in turn so often; the median counts")
    a.add_argument("--bare", action="store_true", help="plain sockets alone, GB/s with as many connections as lanes")
    a.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further options of the engine")
    o = a.parse_args()
    lanes = [int(n) for n in o.lanes.split(",")]
    more = [word for one in o.set for word in ("--set", one)]
    with Hosts(2) as hosts, tempfile.TemporaryDirectory(prefix="bench-lanes-") as folder:
        if o.bare:
            for n in lanes:
                print(f"{n} connections: {statistics.median(bare(hosts, n) for _ in range(o.rounds)):.3f} GB/s")
            return
        known = {"no": [{}], "yes": [certificates(folder)] if o.tls != "no" else []}
        ways = [(n, tls) for tls in (known["no"] if o.tls != "yes" else []) + (known["yes"] if o.tls != "no" else []) for n in lanes]
        found = collections.defaultdict(list)
        for round in range(o.rounds):
            for k in range(len(ways)):
                n, tls = ways[(k + round) % len(ways)]
                for point, us in measure(o, hosts, n, tls, more).items():
                    found[point, n, bool(tls)].append(us)
        head = [f"{n} lane{'s' if n > 1 else ''}{', TLS' if tls else ''}" for n, tls in ways]
        print("| µs | " + " | ".join(head) + " |\n" + "| --- " * (len(head) + 1) + "|")
        for point in sorted({key[0] for key in found}, key=lambda p: (p[0] != "send_recv", p[1])):
            cells = [f"{statistics.median(found[point, n, bool(tls)]):.0f}" for n, tls in ways]
            print(f"| {point[0]} {point[1] >> 10} KiB | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
