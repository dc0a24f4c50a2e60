#!/usr/bin/env python3
"""Every path and every command in the documentation exists.

docs_test.py [FALTUNG] checks all *.md files: links and paths resolve; `./dev X` is a command of ./dev; FALTUNG_X is
a variable that the sources read; `x_cpu` is an algorithm; cmake presets exist; and, given the built faltung command,
`faltung SUB --option` has that subcommand and option, and its problems parse.
"""
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = re.compile(r"^(build|\.git|\.cache)")
TOP = "include src kernels tools bench workloads tests examples docs cmake packaging python .ci".split()
SUFFIXES = "cpp hpp c h inc cmake md py sh csv cl json txt in npy".split()


@functools.cache
def tree():
    paths = []
    for folder, subfolders, files in os.walk(ROOT):
        subfolders[:] = [s for s in subfolders if not SKIPPED.match(s)]
        paths += [pathlib.Path(folder, f).relative_to(ROOT) for f in files]
    return paths


@functools.cache
def sources():
    """All text in which an environment variable, a CMake option or a macro could be defined."""
    return "\n".join((ROOT / p).read_text(errors="replace") for p in tree()
                     if p.suffix in (".cpp", ".hpp", ".h", ".cmake", ".py", ".sh") or p.name in ("CMakeLists.txt", "dev"))


@functools.cache
def help_of(faltung, *subcommand):
    """The help text of a subcommand, or of one of its own; None if there is no such subcommand."""
    result = subprocess.run([faltung, *subcommand, "--help"], capture_output=True, text=True)
    return result.stdout if result.returncode == 0 else None


def expand(path):
    """`a/{b,c}.hpp` as two paths; <placeholders> and NAME as *."""
    path = re.sub(r"<[^<>]*>|NAME|…", "*", path)
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    return [e for part in braces[1].split(",") for e in expand(path[:braces.start()] + part + path[braces.end():])]


def path_exists(path, base):
    for p in expand(path.rstrip("/")):
        if any(True for root in (ROOT, base) for _ in root.glob(p)):
            continue
        return False
    return True


def check_path(word, base):
    if re.match(r"(\./)?(%s)(/|$)" % "|".join(re.escape(t) for t in TOP), word) and "/" in word:
        word = word.removeprefix("./")
        return [] if path_exists(word, base) else [f"no such path: {word}"]
    if re.fullmatch(r"[\w.*<>-]+\.(%s)" % "|".join(SUFFIXES), word) and not word.endswith(".npy"):
        pattern = expand(word)[0]
        return [] if any(p.match(pattern) for p in tree()) else [f"no file of this name: {word}"]
    return []


def check_command(line, faltung):
    """A line of a shell block, or an inline piece of code that begins with a command."""
    line = re.sub(r"^\$\s*", "", line.strip())
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    if not words:
        return []
    if words[0] == "./dev":
        commands = (ROOT / "dev").read_text()
        bad = [w for w in words[1:2] if not re.search(rf"^  (.*\| )?{re.escape(w)}( \|.*)?\)", commands, re.M)]
        return [f"./dev has no command {w}" for w in bad]
    if words[0] == "cmake" and "--preset" in words:
        preset = words[words.index("--preset") + 1]
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        known = {p["name"] for kind in ("configurePresets", "buildPresets") for p in presets[kind]}
        return [] if preset in known else [f"no preset {preset}"]
    if pathlib.Path(words[0]).name == "faltung" and faltung and len(words) > 1 and not words[1].startswith("-"):
        text = help_of(faltung, words[1])
        if text is None:
            return [f"faltung has no subcommand {words[1]}"]
        if len(words) > 2 and not words[2].startswith("-") and re.search(rf"^  {re.escape(words[2])}\b", text, re.M):  # store list, store export
            text += help_of(faltung, words[1], words[2]) or ""
        found = [f"faltung {words[1]} has no option {option}" for option in
                 (w.split("=")[0] for w in words[2:] if w.startswith("--"))
                 if not re.search(rf"{re.escape(option)}\b", text)]
        return found + [e for w in words[2:] if re.match(r"(fwd|bwd_d|bwd_w):", w) for e in check_problem(w, faltung)]
    return []


def check_problem(text, faltung):
    result = subprocess.run([faltung, "explain", text], capture_output=True, text=True)
    return [] if result.returncode == 0 else [f"problem {text}: {result.stderr.strip()}"]


def check_names(text):
    found = [f"no source reads {name}" for name in sorted(set(re.findall(r"\bFALTUNG_[A-Z_]*[A-Z]\b", text)))
             if not re.search(rf"\b{name}\b", sources())]
    for name in sorted(set(re.findall(r"\b([a-z]\w*_(?:cpu|gpu|nki|sm90))(?:/|\b)", text))):
        if not any((ROOT / "src/algorithms" / f"{name}.{suffix}").exists() for suffix in ("cpp", "hpp")):
            found.append(f"no algorithm {name}")
    return found


def made_by(text):
    """The files that a page's own blocks and commands make."""
    made = {name for name in re.findall(r"^(?://|#|/\*) ([\w./-]+\.\w+)(?: \*/)?$", text, re.M)}
    made |= set(re.findall(r"(?:--csv|-o) ([\w./-]+)", text))
    return made | {f"{name}.{kind}" for name in re.findall(r"--report (\w+)", text) for kind in ("txt", "json")}


def check_document(text, base, faltung):
    made = made_by(text)
    return [e for e in found_in(text, base, faltung) if e.split(": ")[-1] not in made]


def found_in(text, base, faltung):
    found = []
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for language, block in blocks:
        lines = re.sub(r"\\\n\s*", " ", block).splitlines()
        # In a block of output only the lines after a prompt are commands.
        commands = lines if language in ("sh", "bash") else [l for l in lines if l.startswith("$ ")]
        found += [e for line in commands for e in check_command(line, faltung)]
        found += [e for line in commands for word in line.split() for e in check_path(word, base)]
    for code in re.findall(r"`([^`\n]+)`", prose):
        found += check_command(code, faltung)
        found += [e for word in code.split() for e in check_path(word.strip("'\",;()"), base)]
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        target = link.split("#")[0]
        if target and not re.match(r"[a-z]+:", target) and not (base / target).exists():
            found.append(f"broken link: {link}")
    return found + check_names(text)


def check_picture():
    """docs/ratios.svg is README's table as it is."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT / "bench"))
    from picture import picture
    same = picture((ROOT / "README.md").read_text()) == (ROOT / "docs/ratios.svg").read_text()
    return [] if same else ["docs/ratios.svg is not README's table: bench/picture.py >docs/ratios.svg"]


def self_test():
    """The check can fail: each of these breaks it."""
    for text in ("`src/nowhere.cpp`", "[a](nowhere.md)", "```sh\n./dev dance\n```\n", "`FALTUNG_NOBODY_READS_" "THIS`",
                 "`nowhere_at_all.cpp`", "`magic_" "cpu/x`", "`cmake --preset nowhere`", "`src/{problem,nowhere}/`"):
        assert check_document(text, ROOT, None), text
    for text in ("```csv\n# own.csv\n```\n`own.csv`", "`src/problem/`", "[a](README.md)", "```sh\n./dev demo\n```\n", "`src/algorithms/<name>_cpu.cpp`",
                 "```\nsrc/nowhere is printed\n```\n", "`cmake --preset asan`", "`registry.cpp`"):
        assert not check_document(text, ROOT, None), text


def main():
    self_test()
    faltung = sys.argv[1] if len(sys.argv) > 1 else None
    documents = [p for p in tree() if p.suffix == ".md"]
    failures = 0
    for path in sorted(documents):
        text = (ROOT / path).read_text()
        for error in check_document(text, (ROOT / path).parent, faltung):
            print(f"{path}: {error}")
            failures += 1
    for error in check_picture():
        print(error)
        failures += 1
    if faltung and help_of(faltung, "bench") is None:
        sys.exit(f"{faltung} bench --help does not work, so that no command could be checked")
    print(f"{len(documents)} documents, {failures} paths, names or commands that do not exist")
    sys.exit(1 if failures or not documents else 0)


if __name__ == "__main__":
    main()
