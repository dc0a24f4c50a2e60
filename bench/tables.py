#!/usr/bin/env python3
"""The tables of docs/performance/ for one device: what a caller gets by default, beside the vendor's library.

    bench/tables.py [--device cpu] [--build build] [--budget 500ms | --plan] [--quick] [--compile | --measure | --write FILE] [SECTION[:LIST,...]...]

Each section is some lists of problems (of them those that are named), timed by one `faltung bench` with the peer in turn: `plan`, the engine's choice without
measuring, from a store without timings; and `find`, after the candidates were measured for --budget a problem.
On a GPU the kernels that find will time first (--kernels) are compiled and tried before, on all processors, so that its budget
goes into timing. --compile does no more than compile them, for --architecture, on a machine that need not have the GPU: into
BUILD/tables/DEVICE/code.pack, which then is taken.
What was measured goes to BUILD/tables/DEVICE/ as CSV; --write puts all that is there into a page, and --measure makes none;
at the end each goal stands beside it (bench/goals.py).
--quick takes two rows a list, briefly: it shows that everything runs, not how fast. --list names the sections.
"""
import argparse
import csv
import datetime
import io
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import goals
from table_page import Page, WrittenPage
from table_sections import sections_of

ROOT = pathlib.Path(__file__).resolve().parent.parent


def rows_of(suite, which, folder):
    """A list of some of its rows, in a file of its own."""
    path = pathlib.Path(folder) / pathlib.Path(suite).name
    path.parent.mkdir(exist_ok=True, parents=True)
    head, *lines = (ROOT / suite).read_text().splitlines()
    path.write_text("\n".join([head, *lines[which]]) + "\n")
    return str(path) if lines[which] else None


def without(command, *options):
    """The command without these options and their values."""
    return [x for before, x in zip([""] + command, command) if x not in options and before not in options]


def plan_and_find(text):
    """What --beside-plan printed as two tables: where plan chose as find did, its row is in both."""
    head, *lines = csv.reader(text.splitlines()) if text else [[]]
    ways = {"plan": {}, "find": {}}
    for line in lines:
        cells = dict(zip(head, line))
        row = (cells["suite"], cells["name"])
        if cells["chosen"] != "0":
            ways["find"][row] = line
        if cells["chosen"] == "0" or row not in ways["plan"]:
            ways["plan"][row] = line
    out = {}
    for way, rows in ways.items():
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([head, *rows.values()])
        out[way] = file.getvalue()
    return out


class Measurer:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.env = dict(os.environ)
        self.env.setdefault("FALTUNG_PEER_PATH", f"{options.build}/bench/peers")
        self.kernels, self.code = folder / "kernels", folder / "code.pack"
        if self.code.exists() and not options.compile:
            self.env["FALTUNG_KNOWN_DEVICES"] = str(self.code)
        self.peers = {}  # what they call themselves; empty for one that cannot be run here

    def rows(self, arguments, store):
        done = subprocess.run(arguments, cwd=ROOT, env=dict(self.env, FALTUNG_STORE=store), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(f"{shlex.join(arguments)}:\n{done.stderr}", file=sys.stderr)
        return done.stdout

    def prepare(self, sections, device, file):
        """What find times first of these sections, into a file that a store imports: no timings are among it."""
        with tempfile.TemporaryDirectory() as folder:
            for section in sections:
                command = section.bench(self.options.build, device, ["--kernels", str(self.options.kernels)])
                command[1] = "prepare"
                self.rows(without(command, "--min-time", "--repeat"), f"{folder}/store")
                print(f"{section.title}: prepared", flush=True)
            self.store("export", str(file), store=f"{folder}/store")

    def store(self, *arguments, store):
        self.rows([f"{self.options.build}/tools/faltung", "store", *arguments], store)

    def measure(self, section):
        with tempfile.TemporaryDirectory() as store:
            if self.kernels.exists():
                self.store("import", str(self.kernels), store=f"{store}/store")
            more = []
            if self.options.quick:
                section.asked = [rows_of(suite, slice(0, 2), store) for suite in section.asked]
                more = ["--min-time", "5ms", "--repeat", "3"]
            beside = ["--vs", section.peer] if self.peers[section.peer] else []
            budget = ["--budget", "100ms" if self.options.quick else self.options.budget, "--beside-plan"]
            ways = {"plan": beside} if self.options.plan else {"find": [*budget, *beside]}
            if section.also and beside:
                ways["also"] = ["--vs", section.also]
            for way, extra in ways.items():
                command = section.bench(self.options.build, self.options.device, [*more, *extra, "--csv", "-"])
                rows = self.rows(command, f"{store}/store")
                for name, text in (plan_and_find(rows) if way == "find" else {way: rows}).items():
                    (self.folder / f"{section.name}.{name}.csv").write_text(text)
        print(section.title, flush=True)

    def machine(self, peers):
        """What the page's head says."""
        command = [f"{self.options.build}/tools/faltung", "devices", "--csv", "-"]
        devices = csv.DictReader(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.splitlines())
        about = next(line for line in devices if line["device"] == self.options.device)
        about["date"] = datetime.date.today().isoformat()
        for peer in peers:
            program = pathlib.Path(self.env["FALTUNG_PEER_PATH"]) / f"faltung-peer-{peer}"
            hello = ""
            if program.exists():
                hello = subprocess.run([program], input="", cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
            self.peers[peer] = hello.splitlines()[0].removeprefix("peer 1 ") if hello else ""
            about[f"peer {peer}"] = self.peers[peer] or f"no {peer}, which is not there"
            if not self.peers[peer]:
                print(f"bench/tables.py: {program} is not there or cannot run here: no ratios to {peer}", file=sys.stderr)
        (self.folder / "machine.json").write_text(json.dumps(about, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION[:LIST,...]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--build", default="build")
    parser.add_argument("--budget", default="500ms", help="of find, a problem; 130 ms were too few for a GPU to measure a second kernel")
    parser.add_argument("--plan", action="store_true", help="no find")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kernels", type=int, default=8, help="so many of a GPU's are compiled and tried before find")
    parser.add_argument("--compile", action="store_true", help="compile those, and no more")
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--measure", action="store_true", help="no page")
    parser.add_argument("--write", metavar="FILE", type=pathlib.Path,
                        help="the page, of what was measured before; lists that were not stay in it as they are")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    options.build = str((ROOT / options.build).resolve())
    every = sections_of(options.device)
    if options.list:
        print("\n".join(f"{s.name}: {s.title}" for s in every))
        return 0
    asked = {name: lists for name, _, lists in (one.partition(":") for one in options.sections)}
    if unknown := set(asked) - {s.name for s in every}:
        parser.error(f"no section {', '.join(sorted(unknown))}; --list names them")
    chosen = [s for s in every if not asked or s.name in asked]
    try:
        for section in chosen:
            if lists := asked.get(section.name):
                section.only(lists.split(","))
    except ValueError as error:
        parser.error(str(error))
    folder = pathlib.Path(options.build) / "tables" / options.device.replace(":", "_")
    folder.mkdir(parents=True, exist_ok=True)
    measurer = Measurer(options, folder)
    if options.compile:
        measurer.prepare(chosen, f"nvrtc:{options.architecture}", measurer.code)
        return 0
    if not options.write:
        measurer.machine(sorted({s.peer for s in chosen}))
        if options.device != "cpu" and not options.quick and not options.plan:
            measurer.prepare(chosen, options.device, measurer.kernels)
        for section in chosen:
            measurer.measure(section)
    before = WrittenPage(options.write.read_text()) if options.write and options.write.exists() else None
    page = Page(folder, every).text(options.device, before)
    if options.write:
        options.write.write_text(page + "\n")
    elif not options.measure:
        print(page)
    print(f"\n## Goals\n\n{goals.table(('', page))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
