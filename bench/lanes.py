#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What several connections between two hosts buy (engine.lanes), and what TLS costs: python3 bench/lanes.py --help.

Two network namespaces, joined by a bridge, or by a long path: then each has a tun device, and this program carries the packets from one to the
other, some milliseconds late; nothing is lost, and nothing else limits it but this program's speed (--bare measures that with a plain socket). How much one connection may have
under way then is up to the system's buffers (--buffer). Needs root, ip(8), openssl(1), /dev/net/tun."""

import argparse
import collections
import fcntl
import json
import multiprocessing
import os
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench", "driver"))
from hosts import Hosts  # noqa: E402

LONG = "lp0"


def carry(source, sink, seconds):
    """What comes from one tun device goes to the other one so much later."""
    late = collections.deque()
    ready = select.poll()
    ready.register(source, select.POLLIN)
    while True:
        wait = None if not late else max(0, (late[0][0] - time.monotonic()) * 1000)
        if ready.poll(wait):
            try:
                while True:
                    late.append((time.monotonic() + seconds, os.read(source, 65536)))
            except BlockingIOError:
                pass
        while late and late[0][0] <= time.monotonic():
            os.write(sink, late.popleft()[1])


class LongPath:
    """A further interface on both hosts, with nothing but this program between them."""

    def __init__(self, hosts, delay_ms, buffer):
        self.hosts, self.seconds, self.buffer, self.carriers = hosts, delay_ms / 1000, buffer, []

    @staticmethod
    def address(h):
        return f"10.213.10.{h + 1}"

    def __enter__(self):
        ends = []
        for h in range(2):
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            name = f"lp{os.getpid()}x{h}"
            fcntl.ioctl(end, 0x400454CA, struct.pack("16sH", name.encode(), 0x1001))  # TUNSETIFF: IFF_TUN | IFF_NO_PI
            subprocess.run(["ip", "link", "set", "dev", name, "netns", self.hosts.name(h), "name", LONG], check=True)
            inside = ["ip", "-n", self.hosts.name(h)]
            subprocess.run([*inside, "addr", "add", f"{self.address(h)}/24", "dev", LONG], check=True)
            subprocess.run([*inside, "link", "set", "dev", LONG, "mtu", "9000", "txqueuelen", "10000", "up"], check=True)
            if self.buffer:
                for key, first in (("tcp_rmem", 131072), ("tcp_wmem", 16384)):
                    subprocess.run(["ip", "netns", "exec", self.hosts.name(h), "sysctl", "-qw", f"net.ipv4.{key}=4096 {min(first, self.buffer)} {self.buffer}"], check=True)
            ends.append(end)
        for source, sink in (ends, ends[::-1]):
            self.carriers.append(multiprocessing.Process(target=carry, args=(source, sink, self.seconds), daemon=True))
            self.carriers[-1].start()
        return self

    def __exit__(self, *_):
        for one in self.carriers:
            one.terminate()
            one.join()


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


def bare(hosts, address, connections, size=64 << 20):
    """GB/s of plain sockets from host 1 to 0, in so many connections at once."""
    receive = ("import socket,sys,time,threading\ns=socket.create_server((sys.argv[1],5700))\nn=int(sys.argv[2])\nc=[s.accept()[0] for _ in range(n)]\n"
               "def r(k):\n b=bytearray(1<<20)\n while k.recv_into(b): pass\nt=time.time()\nw=[threading.Thread(target=r,args=(k,)) for k in c]\n"
               "[x.start() for x in w];[x.join() for x in w]\nprint(time.time()-t)\n")
    send = ("import socket,sys,threading\nn=int(sys.argv[2])\nc=[socket.create_connection((sys.argv[1],5700)) for _ in range(n)]\nb=bytes(int(sys.argv[3])//n)\n"
            "def w(k):\n k.sendall(b); k.close()\nt=[threading.Thread(target=w,args=(k,)) for k in c]\n[x.start() for x in t];[x.join() for x in t]\n")

    def on(h, text):
        return subprocess.Popen(["ip", "netns", "exec", hosts.name(h), sys.executable, "-c", text, address, str(connections), str(size)], stdout=subprocess.PIPE, text=True)
    receiver = on(0, receive)
    time.sleep(0.5)
    sender = on(1, send)
    seconds = float(receiver.communicate(timeout=120)[0])
    sender.wait()
    return size / seconds / 1e9


def measure(o, hosts, lanes, tls, interface, address, more):
    """µs by (collective, bytes); the files of hosts and results are the job's own."""
    files = os.path.join(hosts.folder, "hosts.toml")
    with open(files, "w") as file:
        for h in range(2):
            file.write(f'[[host]]\naddress = "{address(h)}"\nslots = 1\ncommand = ["ip", "netns", "exec", "{hosts.name(h)}", "sh", "-c"]\n')
    out = os.path.join(hosts.folder, "rows.json")
    words = [o.troupe, "launch", "--hosts", files, o.troupe, "bench", "--collective", o.collectives, "-b", o.least, "-e", o.most, "-f", "16",
             "-n", str(o.iterations), "-w", "3", "-J", out, "--set", f"engine.lanes={lanes}", *more]
    environment = {**os.environ, **tls, "TROUPE_INTERFACE": interface}
    done = subprocess.run(["ip", "netns", "exec", hosts.name(0), *words], env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    with open(out) as file:
        rows = json.load(file)["rows"]
    for row in rows:
        if row["wrong"]:
            raise SystemExit(f"wrong bytes: {row}")
    return {(row["collective"], row["bytes"]): row["time_us"] for row in rows}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--troupe", default=os.path.join(ROOT, "build", "release", "troupe"), help="the program")
    a.add_argument("--path", choices=["near", "long"], default="near", help="a bridge, or a path with a delay")
    a.add_argument("--delay-ms", type=float, default=10, help="of the long path, each way (default 10)")
    a.add_argument("--buffer", type=int, default=0, help="of the long path: net.ipv4.tcp_rmem's and tcp_wmem's largest, bytes (default: the system's)")
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
        def all_of_it(interface, address):
            if o.bare:
                for n in lanes:
                    print(f"{n} connections: {statistics.median(bare(hosts, address(0), n) for _ in range(o.rounds)):.3f} GB/s")
                return
            known = {"no": [{}], "yes": [certificates(folder)] if o.tls != "no" else []}
            ways = [(n, tls) for tls in (known["no"] if o.tls != "yes" else []) + (known["yes"] if o.tls != "no" else []) for n in lanes]
            found = collections.defaultdict(list)
            for round in range(o.rounds):
                for k in range(len(ways)):
                    n, tls = ways[(k + round) % len(ways)]
                    for point, us in measure(o, hosts, n, tls, interface, address, more).items():
                        found[point, n, bool(tls)].append(us)
            head = [f"{n} lane{'s' if n > 1 else ''}{', TLS' if tls else ''}" for n, tls in ways]
            print("| µs | " + " | ".join(head) + " |\n" + "| --- " * (len(head) + 1) + "|")
            for point in sorted({key[0] for key in found}, key=lambda p: (p[0] != "send_recv", p[1])):
                cells = [f"{statistics.median(found[point, n, bool(tls)]):.0f}" for n, tls in ways]
                print(f"| {point[0]} {point[1] >> 10} KiB | " + " | ".join(cells) + " |")
        if o.path == "near":
            all_of_it("e0", Hosts.address)
        else:
            with LongPath(hosts, o.delay_ms, o.buffer) as path:
                all_of_it(LONG, path.address)


if __name__ == "__main__":
    main()
