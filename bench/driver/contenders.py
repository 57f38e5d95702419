# SPDX-License-Identifier: Apache-2.0
"""Who is measured, how each is started, and how it is asked for one point."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

CORES = len(os.sched_getaffinity(0))


class Failed(Exception):
    """The contender gave no answer; it has been ended."""


def openmpi_command(program, ranks):
    # Bound to cores where there is one for each rank, as its users do; else free, and mpirun, which knows that it is
    # oversubscribed, makes waiting ranks yield (bench/README.md).
    bind = "core" if ranks <= CORES else "none"
    return ["mpirun.openmpi", "--oversubscribe", "--bind-to", bind, "-n", str(ranks), program]


def mpich_command(program, ranks):
    bind = ["-bind-to", "core"] if ranks <= CORES else ["-bind-to", "none"]
    return ["mpirun.mpich", *bind, "-n", str(ranks), program]


# name: (program, command of (program, ranks), whether each rank is a process)
KINDS = {
    "troupe": ("troupe_ranks", lambda program, ranks: [program, "threads", str(ranks)], False),
    "troupe-group": ("troupe_ranks", lambda program, ranks: [program, "group", str(ranks)], False),
    "troupe-persistent": ("troupe_ranks", lambda program, ranks: [program, "persistent", str(ranks)], False),
    "troupe-async": ("troupe_ranks", lambda program, ranks: [program, "async", str(ranks)], False),
    "limit": ("limit", lambda program, ranks: [program, str(ranks)], False),
    "openmpi": ("peer_openmpi", openmpi_command, True),
    "mpich": ("peer_mpich", mpich_command, True),
    "gloo": ("peer_gloo", lambda program, ranks: [program, str(ranks)], False),
}


def placement(name, ranks):
    """How a contender's ranks sit on the cores, for the report."""
    enough = ranks <= CORES
    if name in ("openmpi", "mpich"):
        waits = "its waiting processes yield" if name == "openmpi" else "its waiting processes do not yield"
        return f"{ranks} processes, " + ("each bound to a core of its own" if enough else f"on {CORES} cores, not bound; {waits}")
    if name == "limit":
        return f"{min(ranks, CORES)} threads, each pinned to a core of its own, sweep over {ranks} ranks' buffers"
    if name in ("troupe-group", "troupe-persistent"):
        return f"one thread drives {ranks} ranks; the engine's own threads help, placed by the system"
    return f"{ranks} threads in one process, placed by the system" + ("" if enough else f" on {CORES} cores")


def available(name, programs):
    program, command, _ = KINDS[name]
    path = os.path.join(programs, program)
    return os.access(path, os.X_OK) and shutil.which(command(path, 2)[0]) is not None


# Open MPI asks for these where the driver runs as root.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
START_AS_ROOT = ["env", *[f"{key}={value}" for key, value in AS_ROOT.items()]]


def mpi_programs(programs, stem, ranks):
    """name: command, of the peers' programs STEM_openmpi and STEM_mpich that were built"""
    found = {}
    for name, command in (("openmpi", openmpi_command), ("mpich", mpich_command)):
        program = os.path.join(programs, f"{stem}_{name}")
        if os.path.exists(program):
            found[name] = [*START_AS_ROOT, *command(program, ranks)]
    return found


class Contender:
    """One contender at one number of ranks. Lives through the whole run and sleeps while others are measured."""

    def __init__(self, name, ranks, programs, logs, command=None, members=None):
        """command, members: of one that is started otherwise than KINDS says, and how many of its processes call the driver."""
        self.name, self.ranks, self.logs = name, ranks, logs
        if command is None:
            program, words, processes = KINDS[name]
            command, members = words(os.path.join(programs, program), ranks), ranks if processes else 1
        self.command, self.members = command, members
        self.process, self.links, self.heard = None, [], b""
        self.failures, self.seconds = 0, 0.0

    def start(self, patience=60):
        folder = tempfile.mkdtemp(prefix="bench-")
        path = os.path.join(folder, "socket")
        log = os.path.join(self.logs, f"{self.name}-{self.ranks}.log")
        environment = dict(os.environ, BENCH_SOCKET=path, **AS_ROOT)
        try:
            with socket.socket(socket.AF_UNIX) as door, open(log, "ab") as output:
                door.bind(path)
                door.listen(self.members)
                door.settimeout(0.2)
                self.process = subprocess.Popen(self.command, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                                stderr=output, start_new_session=True)
                arrived = {}
                deadline = time.monotonic() + patience
                while len(arrived) < self.members:
                    if self.process.poll() is not None or time.monotonic() > deadline:
                        self.end()
                        raise Failed(f"{self.name} with {self.ranks} ranks did not start; see {log}")
                    try:
                        link, _ = door.accept()
                    except socket.timeout:
                        continue
                    link.settimeout(patience)
                    arrived[int(link.makefile("r").readline().split()[1])] = link
            self.links = [arrived[index] for index in sorted(arrived)]
            self.heard = b""
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def ask(self, collective, size, options, check, budget_ms=None, forced=None, words=(), rotate=None):
        """One point, once: the program's answer, or None where it does not do this. forced: (choreography, protocol), ours only; words:
        further KEY=VALUE of harness/control.hpp; rotate: whether the root moves on, instead of the options' answer."""
        if self.process is None:
            self.start(3 * options.patience)  # hundreds of processes on few cores take a minute
        moves = not options.fixed_root if rotate is None else rotate
        line = f"{collective} {size} {budget_ms or options.budget_ms} {int(options.fresh)} {int(check)} {int(moves)}"
        if forced:
            words = (*words, f"choreography={forced[0]}", f"protocol={forced[1]}")
        line = (line + "".join(" " + word for word in words) + "\n").encode()
        try:
            for link in self.links:
                link.sendall(line)
            answer = json.loads(self._line(time.monotonic() + options.patience))
        except (OSError, ValueError) as problem:
            self.end()
            raise Failed(f"{self.name}, {self.ranks} ranks: {collective} of {size} B: {problem}") from None
        if "error" in answer:
            if answer["error"] == "unsupported":
                return None
            self.end()
            raise Failed(f"{self.name}, {self.ranks} ranks: {collective} of {size} B: {answer['error']}")
        return answer

    def _line(self, deadline):
        while b"\n" not in self.heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.links[0]], [], [], left)[0]:
                raise OSError("no answer in time")
            got = self.links[0].recv(65536)
            if not got:
                raise OSError("it ended")
            self.heard += got
        line, self.heard = self.heard.split(b"\n", 1)
        return line

    def end(self):
        """Asks it to leave; takes it down with its own process group if it does not. Safe to call twice."""
        if self.process is None:
            return
        for link in self.links:
            try:
                link.sendall(b"quit\n")
            except OSError:
                pass
            link.close()
        for patience, number in ((5, signal.SIGTERM), (5, signal.SIGKILL), (5, None)):
            try:
                self.process.wait(patience if self.links else 1)
                break
            except subprocess.TimeoutExpired:
                if number is not None:
                    os.killpg(self.process.pid, number)  # its own session: see start_new_session
        self.process, self.links = None, []
