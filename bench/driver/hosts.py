# SPDX-License-Identifier: Apache-2.0
"""Hosts that are network namespaces of this computer, joined by a bridge; and how each contender is started over them. Needs root and ip(8)."""

import json
import os
import shutil
import subprocess
import tempfile

INTERFACE = "e0"
# A name of its own: MPI takes processes whose hosts have one name for neighbours.
AS_HOST = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"']
# Stands in for rsh: its options, a host, and the text for a shell there.
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
number=$((${{1##*.}} - 1)); shift
exec ip netns exec {prefix}h$number unshare --uts sh -c 'hostname "$0" && eval "$1"' "host$number" "$*"
"""


def why_not():
    """Why there can be no such hosts here; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "unshare", "hostname") if shutil.which(tool) is None]
    if missing:
        return f"there is no {missing[0]} here (Debian: iproute2, util-linux, hostname)"
    name = f"tb{os.getpid()}x"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


def rows_of(words, out, variables, seconds):
    """The rows of the JSON that the command, a bench or a run of troupe, writes to `out`. Ends the program where it fails, or where bytes are wrong."""
    done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    with open(out) as file:
        rows = json.load(file)["rows"]
    for row in rows:
        if row["wrong"]:
            raise SystemExit(f"wrong bytes: {row}")
    return rows


class Hosts:
    """with Hosts(2) as hosts: …  Host h has the address hosts.address(h)."""

    def __init__(self, count):
        self.count, self.prefix = count, f"tb{os.getpid()}"
        self.folder = tempfile.mkdtemp(prefix="bench-hosts-")

    def __enter__(self):
        try:
            self._ip("netns", "add", self._bridge())
            self._ip("-n", self._bridge(), "link", "add", "name", "sw0", "type", "bridge")
            self._ip("-n", self._bridge(), "link", "set", "dev", "sw0", "up")
            for h in range(self.count):
                self._ip("netns", "add", self.name(h))
                self._ip("link", "add", "name", INTERFACE, "netns", self.name(h), "type", "veth", "peer", "name", f"p{h}", "netns", self._bridge())
                self._ip("-n", self._bridge(), "link", "set", "dev", f"p{h}", "master", "sw0", "up")
                self._ip("-n", self.name(h), "addr", "add", f"{self.address(h)}/24", "dev", INTERFACE)
                for device in (INTERFACE, "lo"):
                    self._ip("-n", self.name(h), "link", "set", "dev", device, "up")
            agent = os.path.join(self.folder, "agent")
            with open(agent, "w") as file:
                file.write(AGENT.format(prefix=self.prefix))
            os.chmod(agent, 0o755)
        except subprocess.CalledProcessError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [self._bridge(), *map(self.name, range(self.count))]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def _bridge(self):
        return self.prefix + "b"

    def name(self, h):
        return f"{self.prefix}h{h}"

    @staticmethod
    def address(h):
        return f"10.213.9.{h + 1}"

    def _on_first(self, words):
        return ["ip", "netns", "exec", self.name(0), *AS_HOST, "host0", *words]

    # -- how each is started: `each` processes on every host, those of a host behind one another --

    def troupe(self, troupe, words, each):
        path = os.path.join(self.folder, f"hosts-{each}.toml")
        with open(path, "w") as file:
            for h in range(self.count):
                # Also the first one's by a shell: a process that is started so has a session of its own, and Linux shares these cores among sessions.
                shell = f'["ip", "netns", "exec", "{self.name(h)}", "sh", "-c"]'
                file.write(f'[[host]]\naddress = "{self.address(h)}"\nslots = {each}\ncommand = {shell}\n')
        return self._on_first([troupe, "launch", "--hosts", path, *words])

    def openmpi(self, words, each, more=()):
        where = ",".join(f"{self.address(h)}:{each}" for h in range(self.count))
        # Each host takes all cores for its own, and would bind its first process to the same one.
        return self._on_first(["mpirun.openmpi", "--mca", "plm_rsh_agent", os.path.join(self.folder, "agent"), "--mca", "oob_tcp_if_include", INTERFACE,
                               "--mca", "btl_tcp_if_include", INTERFACE, "--bind-to", "none", *more, "--host", where, "-n", str(each * self.count), *words])

    def mpich(self, words, each):
        where = ",".join(f"{self.address(h)}:{each}" for h in range(self.count))
        return self._on_first(["mpirun.mpich", "-launcher", "rsh", "-launcher-exec", os.path.join(self.folder, "agent"), "-iface", INTERFACE, "-bind-to", "none",
                               # It would see through the namespaces, and share memory.
                               "-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "UCX_TLS", "tcp,self", "-hosts", where, "-n", str(each * self.count), *words])
