#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""study_vs_smpi.py [BUILD] [--ranks 256] [--bytes 1048576] [--rounds 5] [--by auto|states|player]: the same ring all-reduce in virtual time
by Troupe and by SimGrid SMPI (its own ring, `lr`), in turn, on the same α (1 µs) and β (10 GB/s). Medians of wall times. Nothing here asserts
a time; that both say the same virtual time is checked. Needs libsimgrid-dev and a build of the tests (`./dev build`)."""
import argparse, pathlib, shutil, statistics, subprocess, sys, tempfile, time

OPTIONS = ["smpi/bw-factor:0:1", "smpi/lat-factor:0:1", "network/weight-S:0", "network/crosstraffic:0", "network/TCP-gamma:1e15",
           "smpi/simulate-computation:no", "smpi/send-is-detached-thresh:0", "smpi/wtime:0", "surf/precision:1e-12", "smpi/allreduce:lr"]
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><cluster id="star" prefix="rank" suffix="" radical="0-{last}" speed="1Gf" bw="10GBps" lat="500ns" sharing_policy="SPLITDUPLEX"/></platform>
"""
STUDY = """[study]
collective = "all_reduce"
choreography = "ring"
sizes = [{bytes}]
ranks = {ranks}
[study.hardware]
link.latency = "500ns"
link.bandwidth = "10 GB/s"
"""


def timed(command, **more):
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, **more)
    return time.perf_counter() - begin, done.stdout


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=root / "build/release")
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--bytes", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--by", default="auto", help="study.performed_by")
    a = parser.parse_args()
    smpirun, program = shutil.which("smpirun"), a.build.resolve() / "tests/oracle/smpi_collectives"
    if smpirun is None or not program.exists():
        sys.exit("there is no smpirun, or tests/oracle was not built with it; install libsimgrid-dev and run ./dev build")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "platform.xml").write_text(PLATFORM.format(last=a.ranks - 1))
        (folder / "hosts").write_text("".join(f"rank{r}\n" for r in range(a.ranks)))
        (folder / "study.toml").write_text(STUDY.format(ranks=a.ranks, bytes=a.bytes))
        smpi = [smpirun, "-quiet", "-no-privatize", "-np", str(a.ranks), "-platform", "platform.xml", "-hostfile", "hosts", "--log=root.threshold:error",
                *[f"--cfg={o}" for o in OPTIONS], program]
        troupe = [a.build.resolve() / "troupe", "study", folder / "study.toml", "--set", f"performed_by={a.by}", "--csv", folder / "times.csv"]
        whole, empty, ours, inside = [], [], [], []
        for _ in range(a.rounds):
            seconds, said = timed([*smpi, "built_in", str(a.ranks), str(a.bytes)], cwd=folder)
            theirs_us = max(map(float, said.split()[3:])) / 1e3
            whole.append(seconds)
            empty.append(timed(smpi, cwd=folder)[0])
            seconds, said = timed(troupe)
            ours.append(seconds)
            inside.append(float(said.split("simulated in ")[1].split()[0]))
            ours_us = float((folder / "times.csv").read_text().splitlines()[-1].split(",")[11])
    if abs(ours_us - theirs_us) > 1e-3 * theirs_us:
        sys.exit(f"they disagree: {ours_us} and {theirs_us} virtual us")
    median = statistics.median
    simulation = median(whole) - median(empty)
    print(f"ring all_reduce of {a.bytes} bytes on {a.ranks} ranks, {a.rounds} rounds in turn; virtual time {ours_us:.4f} us, SMPI {theirs_us:.4f} us")
    print(f"{'wall s, median':24} {'SMPI':>8} {'troupe':>8} {'ratio':>8}")
    print(f"{'whole process':24} {median(whole):8.3f} {median(ours):8.3f} {median(whole) / median(ours):8.1f}   (troupe: score written, and verified up to 256 ranks)")
    print(f"{'the simulation alone':24} {simulation:8.3f} {median(inside):8.3f} {simulation / max(median(inside), 1e-3):8.1f}   (SMPI: less a run without a job)")


if __name__ == "__main__":
    main()
