#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""documents_test.py ROOT PROGRAM BUILD: what the documents show is what happens.

Commands are the lines of ```sh blocks, and the lines behind "$ " of ```console blocks, whose other lines are what they print ("…" stands
for any lines that are left out). A command whose comment says that it takes a minute or more, or needs something ("# takes …", "# needs …"),
is not run; its options are looked up all the same. `./dev` is never run, as it builds. Commands run in a fresh folder beside a link to the
tree's config/, and with "troupe" in the PATH.

Tables that can be generated are: the choreographies and what they offer, what an all_reduce and a scan cost, the study tutorial's results,
the files of config/, and targets below build/release/.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

root, program, build = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
documents = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
faults: list[str] = []
work = Path(tempfile.mkdtemp(prefix="troupe_documents_"))


def fault(where: str, text: str) -> None:
    faults.append(f"{where}: {text}")


def set_up() -> dict[str, str]:
    (work / "bin").mkdir()
    (work / "bin/troupe").symlink_to(program)
    (work / "config").symlink_to(root / "config")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    environment["PATH"] = f"{work / 'bin'}:{environment['PATH']}"
    environment["XDG_CONFIG_HOME"] = str(work / "home")  # no tuning file of this user's
    return environment


def run(command: str, seconds: int = 240) -> tuple[int, str, str]:
    try:
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=work, env=environment, capture_output=True, text=True,
                              timeout=seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return -1, "", f"it takes more than {seconds} s; say so behind it: # takes …"
    return done.returncode, done.stdout, done.stderr


def blocks(document: Path, language: str) -> list[tuple[str, list[str]]]:
    """Of every fenced block of the language: where it is, and its lines."""
    found, inside, lines, begin = [], False, [], 0
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if not inside and line.strip() == "```" + language:
            inside, lines, begin = True, [], number
        elif inside and line.strip() == "```":
            inside = False
            found.append((f"{document.relative_to(root)}:{begin}", lines))
        elif inside:
            lines.append(line)
    return found


def rows(document: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first line begins with the heading."""
    lines = (root / document).read_text().splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith(heading)), None)
    if at is None:
        fault(document, f"there is no table {heading!r} any more")
        return []
    table = []
    for line in lines[at + 2:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return table


# -- commands ---------------------------------------------------------------------------------------------------------

helps: dict[str, str] = {}


def check_options(where: str, command: str) -> None:
    """That every option of a troupe command is one, run or not. What a shell is given is a command of its own."""
    command, *inside = re.split(r"\ssh -c\s+['\"]", command, maxsplit=1)
    for text in inside:
        check_options(where, text)
    for words in re.findall(r"(?:^|[;&|(] *|\s)troupe ([a-z]+)([^;&|]*)", command):
        name, rest = words
        if name not in helps:
            code, helps[name], _ = run(f"troupe {name} --help")
            if code != 0:
                fault(where, f"there is no command troupe {name}")
        for option in re.findall(r"(?<=\s)(--[a-z-]+|-[A-Za-z])(?=[\s=]|$)", rest):
            if not re.search(rf"(?<![\w-]){option}(?![\w-])", helps[name]):
                fault(where, f"troupe {name} has no option {option}")


def check_dev(where: str, command: str) -> None:
    words = command.split()
    usage = (root / "dev").read_text()
    if len(words) > 1 and not re.search(rf"^  {re.escape(words[1])}\b", usage, re.M):
        fault(where, f"./dev has no command {words[1]}")


def perform(where: str, line: str) -> str | None:
    """What a command prints; None: it is not run here."""
    command, _, comment = line.partition(" #")
    command = command.strip()
    if not command or command.startswith("#"):
        return None
    check_options(where, command)
    if "./dev" in command:
        check_dev(where, command[command.index("./dev"):])
        return None
    if re.search(r"\b(takes|needs)\b", comment):
        return None
    if not re.search(r"(^|[;&|(] *|[A-Z_]+=\S+ )troupe ", command):
        fault(where, f"`{command}` is no command that this test knows how to run; say what it needs: # needs …")
        return None
    code, out, err = run(command)
    if code != 0:
        fault(where, f"`{command}` ended with {code}:\n{err[-1500:]}")
    return out


def check_output(where: str, command: str, expected: list[str], printed: str) -> None:
    at, lines = 0, [line.rstrip() for line in printed.splitlines()]
    for line in expected:
        if line.strip().startswith("…") or not line.strip():
            continue
        if line.rstrip() in lines[at:]:
            at = lines.index(line.rstrip(), at) + 1
        else:
            fault(where, f"`{command}` does not print (any more, or not there)\n    {line}")
            return


def check_commands() -> int:
    count = 0
    for document in documents:
        for where, lines in blocks(document, "sh"):
            for line in lines:
                count += perform(where, line) is not None
        for where, lines in blocks(document, "console"):
            starts = [i for i, line in enumerate(lines) if line.startswith("$ ")] + [len(lines)]
            for begin, end in zip(starts, starts[1:]):
                printed = perform(where, lines[begin][2:])
                count += printed is not None
                if printed is not None:
                    check_output(where, lines[begin][2:], lines[begin + 1:end], printed)
        if re.search(r"^    (\$ |troupe |\./dev |build/release)", document.read_text(), re.M):
            fault(document.name, "a command stands in an indented block, where nothing runs it; write ```sh or ```console")
    return count


# -- tables -----------------------------------------------------------------------------------------------------------

def check_choreographies() -> None:
    known = {c["name"]: set(c["collectives"]) for c in json.loads(run("troupe list --json")[1])}
    every = set().union(*known.values())
    for document in ("README.md", "docs/choreographies.md"):
        heading = "| name | offers |" if document == "README.md" else "| choreography | offers |"
        table = rows(document, heading)
        named = [cells[0].strip("`") for cells in table]
        for name in known.keys() - set(named):
            fault(document, f"the table of choreographies lacks {name}")
        for name in set(named) - known.keys():
            fault(document, f"the table of choreographies has {name}, which there is not")
        offered: set[str] = set()
        for cells in table:
            text = cells[1]
            words = set(re.findall(r"[a-z]+(?:_[a-z]+)*", text.replace("(_v)", ""))) & every
            if "every collective" in text:
                words = every
            if not text.startswith("the same"):
                offered = words
            elif not words <= offered:
                fault(document, f"{cells[0]}: what is the same?")
            name = cells[0].strip("`")
            if name in known and offered != known[name]:
                fault(document, f"{name} offers {sorted(known[name])}, the table says {sorted(offered)}")


def check_costs() -> None:
    """Messages, and how contributions are combined, on 8 ranks."""
    known = [c["name"] for c in json.loads(run("troupe list --json")[1])]

    def last_line(name: str, collective: str, layout: str) -> str | None:
        code, out, _ = run(f"troupe show {name} --collective {collective} {layout}")
        return out.splitlines()[-1] if code == 0 else None

    table = {cells[0].strip("`"): cells[1:] for cells in rows("docs/choreographies.md", "| all_reduce by |")}
    for name in known:
        # Levels and trees of servers need some; a segment that all share needs that there are none.
        levels = name.startswith("hierarchical") or name.endswith("_per_nic") or name == "chained_double_tree"
        printed = last_line(name, "all_reduce", "--layout 2x4" if levels else "--ranks 8")
        if printed is None:
            if name in table:
                fault("docs/choreographies.md", f"{name} stands among those of all_reduce, which it does not offer")
            continue
        if name not in table:
            fault("docs/choreographies.md", f"the costs of an all_reduce lack {name}")
            continue
        messages = sum(int(n) for n in re.findall(r"(\d+) (?:of|tokens)", table[name][0]))
        told = int(re.search(r"(\d+) messages?", printed)[1])
        if messages != told:
            fault("docs/choreographies.md", f"{name}: {messages} messages in the table, {told} in the score")
        says = table[name][1]
        for word, shown in (("left fold", "left fold"), ("one tree", "same tree"), ("every part in another order", "does not combine")):
            if word in says and shown not in printed:
                fault("docs/choreographies.md", f"{name}: \"{word}\" in the table, but: {printed}")
        if "left fold" in printed and "left fold" not in says:
            fault("docs/choreographies.md", f"{name}: the table does not say that it is a left fold")
    prefixes = {cells[0].strip("`"): cells[1:] for cells in rows("docs/choreographies.md", "| scan and exscan by |")}
    for name in known:
        printed = last_line(name, "scan", "--ranks 8")
        if (printed is None) != (name not in prefixes):
            fault("docs/choreographies.md", f"the costs of a scan and `troupe list` disagree about {name}")
        elif printed is not None and (("left fold" in printed) != ("left fold" in prefixes[name][2])):
            fault("docs/choreographies.md", f"{name}: scan combines otherwise than the table says: {printed}")
        for told in re.findall(r"(\d+) for 8 ranks", prefixes[name][0]) if name in prefixes else []:
            collective = "exscan" if name == "binomial" else "scan"
            both = [int(re.search(r"(\d+) messages?", last_line(name, c, "--ranks 8") or "0 messages")[1]) for c in ("scan", "exscan")]
            if int(told) not in both:
                fault("docs/choreographies.md", f"{name}: {told} messages for 8 ranks in the table, {both} in the scores")


def check_study() -> None:
    # A flow has fewer columns before the time than a collective.
    for study, column in (("config/studies/ring.toml", 5), ("config/studies/flow.toml --set sizes=32M", 3)):
        for cells in rows("docs/study.md", f"| command: `troupe study {study} …`"):
            command = f"troupe study {study} " + cells[0].strip("`")
            wanted = re.findall(r"([\d.]+) µs", cells[1])
            if not wanted:
                continue
            code, out, err = run(command)
            times = [line.split()[column] for line in out.splitlines() if line.strip() and not line.startswith("#")]
            if code != 0 or wanted[0] not in times:
                fault("docs/study.md", f"`{command}`: {wanted[0]} µs in the table, {times} printed {err}")


def check_scores() -> None:
    """Score files that a document shows are scores, and verify."""
    for document in documents:
        for where, lines in blocks(document, "json"):
            if "troupe_score" not in "".join(lines):
                continue
            (work / "shown.json").write_text("\n".join(lines))
            code, out, err = run("troupe verify shown.json")
            if code != 0:
                fault(where, f"the score does not verify: {err}")


def check_refusals() -> None:
    for cells in rows("docs/config.md", "| command | says |"):
        command = cells[0].strip("`")
        code, out, err = run(command)
        if code != 0 or cells[1] not in out:
            fault("docs/config.md", f"`{command}` does not say \"{cells[1]}\" {err}")


def check_files() -> None:
    text = (root / "config/README.md").read_text()
    for file in sorted((root / "config").glob("*.toml")):
        if f"`{file.name}`" not in text:
            fault("config/README.md", f"{file.name} is not in the table")
    for document in documents:
        text = document.read_text()
        for path in re.findall(r"(?<![\w/])((?:config|examples|engine|protocols|actors|topology|memory|tests|bench|docs)/[\w./-]*\w)", text):
            here = [root / path, *(root / (path + end) for end in (".cpp", ".hpp", ".md"))]
            if not any(p.exists() for p in here) and "build/release/" + path not in text and "mine" not in path:
                fault(str(document.relative_to(root)), f"there is no {path}")


def check_links() -> None:
    for document in [*root.glob("*.md"), *(p for p in root.glob("*/**/*.md") if "build" not in p.parts)]:
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            if not (document.parent / target).exists():
                fault(str(document.relative_to(root)), f"the link to {target} leads nowhere")


def check_targets() -> None:
    """What a document runs below build/release/ is built by something."""
    if not (build / "build.ninja").exists() or shutil.which("ninja") is None:
        return
    targets = {line.split(":")[0] for line in subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"], capture_output=True,
                                                             text=True).stdout.splitlines()}
    for document in [*documents, root / "bench/README.md"]:
        for path in sorted(set(re.findall(r"build/release/([\w/]*\w)", document.read_text()))):
            if path not in targets and not any(target.startswith(path + "/") for target in targets):
                fault(str(document.relative_to(root)), f"nothing builds build/release/{path}")


def check_quoted(document: str, source: str) -> None:
    """Every line of a document's C++ and C stands in a program that is built and run, in the same order within a block."""
    program = [" ".join(line.split("//")[0].split()) for line in (root / source).read_text().splitlines()]
    quoted = [*blocks(root / document, "cpp"), *blocks(root / document, "c")]
    if not quoted:
        fault(document, f"quotes nothing of {source}")
    for where, lines in quoted:
        at = 0
        for line in lines:
            text = " ".join(line.split("//")[0].split())
            if not text:
                continue
            if text not in program[at:]:
                fault(where, f"{source} has no such line, or not there:\n    {line}")
                break
            at += program[at:].index(text) + 1


environment = set_up()
try:
    commands = check_commands()
    check_choreographies()
    check_costs()
    check_study()
    check_scores()
    check_refusals()
    check_files()
    check_links()
    check_targets()
    check_quoted("docs/tiers.md", "examples/11_card_memory.cpp")
finally:
    shutil.rmtree(work, ignore_errors=True)
for text in faults:
    print(text)
print(f"{commands} commands of the documents run, {len(faults)} faults")
sys.exit(1 if faults or commands < 10 else 0)
