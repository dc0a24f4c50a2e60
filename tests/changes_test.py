#!/usr/bin/env python3
"""What each change touches: ARCHITECTURE.md's table, held to the code.

changes_test.py BUILD makes each of the table's changes, a toy, in a copy of the repository, with the files of
tests/changes/ and the lines below, in the places that its row names and in no others. The new files must then compile,
with every warning about an enumerator that a switch leaves out an error. With FALTUNG_TEST_FULL=1 the copy is built and
the toys are tried out. BUILD is a build folder, for its compiler's flags.
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOYS = ROOT / "tests" / "changes"


class Copy:
    """A copy of the repository that knows what was changed in it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True,
                               text=True, check=True).stdout.split("\n")
        for name in files:
            if name and (ROOT / name).is_file():
                self.write(name, (ROOT / name).read_bytes())
        self.touched = set()

    def write(self, name, content):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(content)
        (self.folder / name).chmod((ROOT / name).stat().st_mode if (ROOT / name).exists() else 0o644)

    def add(self, name, toy):
        if (self.folder / name).exists():
            sys.exit(f"{name} exists: the toy needs another name")
        self.write(name, (TOYS / toy).read_bytes())
        self.touched.add(name)

    def insert(self, name, before, line):
        """A line before the last that has this text."""
        text = (self.folder / name).read_text()
        at = text.rfind(before)
        if at < 0:
            sys.exit(f"{name} has no '{before}': mend the toy in {__file__}")
        start = text.rfind("\n", 0, at) + 1
        (self.folder / name).write_text(text[:start] + line + "\n" + text[start:])
        self.touched.add(name)


def algorithm(copy):
    copy.add("src/algorithms/toy_cpu.cpp", "toy_algorithm.cpp")
    copy.add("kernels/cpu/toy.hpp", "toy_kernel.hpp")
    copy.add("kernels/cpu/toy.cpp", "toy_kernel.cpp")
    copy.insert("src/algorithms/registry.hpp", "make_winograd_cpu", "std::unique_ptr<Algorithm> make_toy_cpu();")
    copy.insert("src/algorithms/registry.cpp", "make_winograd_cpu", "    all.push_back(make_toy_cpu());")


def config(copy):
    copy.insert("src/algorithms/toy_cpu.cpp", "    {1},", "    {2},")


def activation(copy):
    ops, header = "kernels/common/epilogue_ops.inc", "include/faltung/problem.hpp"
    text = (copy.folder / ops).read_text()
    (copy.folder / ops).write_text(text.rstrip("\n") + "\nFALTUNG_ACTIVATION(toy, F_MAX(x, F_C(0.0f) - x))\n")
    text = (copy.folder / header).read_text()
    changed = re.sub(r"(enum class Activation \{[^}]*\w)(,?\s*\})", r"\1, toy\2", text)
    if changed == text:
        sys.exit(f"{header} has no enum class Activation: mend the toy in {__file__}")
    (copy.folder / header).write_text(changed)
    copy.touched |= {ops, header}
    copy.insert("src/problem/reference.cpp", "case Activation::relu6:", "    case Activation::toy:\n      return std::abs(x);")
    tolerance = (copy.folder / "src/problem/tolerance.cpp").read_text()
    (copy.folder / "src/problem/tolerance.cpp").write_text(
        tolerance.replace("    case Activation::relu6:\n", "    case Activation::relu6:\n    case Activation::toy:\n", 1))
    copy.touched.add("src/problem/tolerance.cpp")


def backend(copy):
    copy.add("src/backend/toy.cpp", "toy_backend.cpp")
    copy.add("kernels/gpu/toy.h", "toy_macros.h")
    copy.insert("src/backend/backend.cpp", "each(opencl)", "  each(toy) \\")


def subcommand(copy):
    copy.add("tools/toy.cpp", "toy_subcommand.cpp")


def peer(copy):
    copy.add("bench/peers/toy.cpp", "toy_peer.cpp")


# The rows of the table, by how they begin, in the order in which they are made.
CHANGES = {"an algorithm": algorithm, "a config of an algorithm": config, "an epilogue operation": activation,
           "a backend": backend, "a subcommand": subcommand, "a peer": peer}


def rows():
    """The places of each row of the table, as patterns."""
    section = (ROOT / "ARCHITECTURE.md").read_text().split("## What each change touches")[1].split("\n## ")[0]
    found = {}
    for name, places in re.findall(r"^\| ([^|]+) \| (.+) \|$", section, re.M):
        found[name.strip()] = [p for p in re.findall(r"`([^`]+)`", places) if "/" in p]
    return found


def fits(path, pattern):
    parts = [re.escape(p) for p in re.split(r"<\w+>|\*", pattern)]
    return re.fullmatch(r"[\w]+".join(parts), path) is not None


def check_row(name, places, touched):
    beyond = [t for t in touched if not any(fits(t, p) for p in places)]
    missing = [p for p in places if not any(fits(t, p) for t in touched)]
    if beyond or missing:
        sys.exit(f"ARCHITECTURE.md's row '{name}' is not true: also touched {beyond}, not touched {missing}")
    print(f"{name}: {', '.join(sorted(touched))}")


def flags(build):
    """How the library and the tools are compiled, from the build folder's ninja files."""
    commands = subprocess.run(["ninja", "-C", build, "-t", "compdb"], capture_output=True, text=True, check=True).stdout
    for entry in json.loads(commands):
        if entry["file"].endswith("/tools/command.cpp") and " -c " in entry["command"]:
            words = shlex.split(entry["command"])
            first = next(i for i, w in enumerate(words) if w.startswith("-"))
            return [words[first - 1]] + [  # before it may stand a launcher, such as ccache
                w.replace(str(ROOT), "{copy}") for w in words if re.match(r"-[DIWf]|-std|-isystem", w)]
    sys.exit(f"{build} has no command for tools/command.cpp")


def compiles(copy, build):
    """The files that are new or touched, and those that switch over activations."""
    command = [w.replace("{copy}", str(copy.folder)) for w in flags(build)]
    sources = [t for t in copy.touched if t.endswith(".cpp")] + ["src/problem/problem.cpp", "src/problem/parse.cpp"]
    for source in sorted(set(sources)):
        subprocess.run([*command, "-Werror=switch", "-fsyntax-only", str(copy.folder / source)], check=True)
    print(f"{len(set(sources))} files compile")


def says(expected, *command, code=0, **kwargs):
    """A command that prints that, and ends so."""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, **kwargs)
    if expected not in ran.stdout + ran.stderr or ran.returncode != code:
        sys.exit(f"{shlex.join(map(str, command))}: exit code {ran.returncode}, no '{expected}' in\n{ran.stdout}{ran.stderr}")
    print(f"ok: {shlex.join(map(str, command[1:]))}: {expected}")


def works(copy):
    build = copy.folder / "build"
    subprocess.run(["cmake", "-S", copy.folder, "-B", build, "-G", "Ninja", "-DFALTUNG_TESTS=OFF", "-DFALTUNG_PEERS=ON",
                    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=-Werror=switch -O1"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "--parallel", str(os.cpu_count()), "--target", "faltung_command",
                    "faltung-peer-toy"], check=True, stdout=subprocess.DEVNULL)
    environment = os.environ | {"FALTUNG_STORE": str(build / "store")}
    faltung = [build / "tools" / "faltung"]

    def tool(expected, *words, code=0):
        says(expected, *faltung, *words, code=code, env=environment)

    tool("2 kernels on 1 problems: 2 pass", "verify", "fwd:n2c8h9w7k6r3s3:pad1:st2", "--kernel", "toy_cpu*")
    tool("toy_cpu/tt2", "verify", "fwd:n1c4h6w5k6r1s1:g2:f32:nhwc", "--kernel", "toy_cpu*")
    tool("toy_cpu: a toy: forward", "verify", "fwd:n2c8h9w7k6r3s3:f16", "--kernel", "*_cpu*")
    for layout in ("nchw", "nhwc"):
        tool("0 do not", "verify", f"fwd:n2c8h9w7k6r3s3:pad1:f32:{layout}:bias:toy", "--kernel", "*_cpu*")
        tool("0 do not", "verify", f"fwd:n1c24h9w7k24r3s3:g24:f16:{layout}:toy", "--kernel", "*_cpu*")
    tool("nearest is toy", "verify", "fwd:n2c8h9w7k6r3s3:toyy", code=2)
    tool("toy:0  a toy", "devices")
    tool("a toy reads its own words", "verify", "fwd:n2c8h9w7k6r3s3", "--device", "toy:0", "--kernel", "direct_gpu*",
         "--in-process", code=1)
    tool("a toy says hello", "toy", "--say", "hello")
    tool("Says what it is told", "--help")
    says("ready a millisecond", build / "bench" / "peers" / "faltung-peer-toy",
         input="prepare device=cpu threads=1 sets=1 fwd:n1c8h6w6k8r3s3\n")


def main():
    with tempfile.TemporaryDirectory(prefix="faltung_changes_") as folder:
        copy = Copy(folder)
        places = rows()
        every = set()
        for name, change in CHANGES.items():
            if name not in places:
                sys.exit(f"ARCHITECTURE.md's table of changes has no row '{name}'")
            copy.touched = set()
            change(copy)
            check_row(name, places[name], copy.touched)
            every |= copy.touched
        copy.touched = every
        compiles(copy, sys.argv[1])
        if os.environ.get("FALTUNG_TEST_FULL"):
            works(copy)
        else:
            print("FALTUNG_TEST_FULL=1 builds them and tries them out")


main()
