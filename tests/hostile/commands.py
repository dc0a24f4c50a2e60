#!/usr/bin/env python3
"""The faltung command in hostile places: file kinds, full disks, closed descriptors, limits, signals, odd bytes.

    commands.py FALTUNG [--seconds N] [--seed N] [--turn N]

Whatever it is asked, it ends in time, by no signal of its own, with an exit code of 0, 1, 2 or 130; where that is 2, one line
says why; no output has a terminal's commands in it; and what was no file before is none afterwards.
"""
import argparse
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

PROBLEMS = ["n1c8h9w8k8r3s3:pad1", "fwd:n1c8h9w8k8r1s1:f32:nhwc:relu", "bwd_w:n1c8h9w8k8r3s3:pad1", "f64", "model.onnx",
            "n1c8h9w8k8r3s3:\x1b[2J", "\udcff\udcfe", "", "n99999999c9999999h9999w9999k9999r1s1", "MIOpenDriver conv -n 1",
            "--dir=FWD_B ic8ih10oc16kh3", "n1c8h9w8k8r3s3:pad1:" + "relu:" * 1000, "n1c8d4h9w8k8t3r3s3:pad1", "n1c8w90k8s3:maxpool2",
            "n1c8h9w9k8r3s3:st2:transposed:outpad1", "bwd_d:n1c4d3h5w5k8t2r3s3:transposed:st2", "n1c8h9w8k8r3s3:pad1:g8",
            "add:4x4", "transpose:2x4x4:f16", "add:99999999999999999999x1"]
NETWORKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus", "onnx")
SIZES = [*(f"x=1x{channels}x9x9" for channels in (3, 4, 5, 6, 8)), "x=2x8x30x40", "x=1x4x9", "x=0x8x9x9", "x=-1x8x-1x-1",
         "x=99999999x8x9999x9999", "y=1", "x", "\x1b[2J=1"]
PATTERNS = ["*", "direct*", "winograd_cpu", "wingrad*", "a/b", "\x1b[2J", ""]


def files(folder, dice):
    """Of every kind; what there is of the store, the lists and the arrays, and what cannot be."""
    def path(name):
        return os.path.join(folder, name)

    def write(name, content):
        with open(path(name), "wb") as out:
            out.write(content)
        return path(name)

    os.mkfifo(path("fifo"))
    os.symlink("loop", path("loop"))
    os.symlink("nowhere", path("dangling"))
    os.mkdir(path("folder"))
    os.mkdir(path("closed"))
    os.chmod(path("closed"), 0)
    write("empty", b"")
    write("noise", bytes(range(256)) * 50)
    write("list.csv", b"name,n,c,h,w,k,r,s\nx,1,8,9,8,8,3,3\n")
    write("odd.csv", b"name,n,c,h,w,k,r,s\n\xff\x1b[2J\x07,1,8,9,8,8,3,3\n")
    write("array.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 8, 9, 8), }".ljust(128)
          + bytes(4 * 576))
    whole = open(os.path.join(NETWORKS, dice.choice(sorted(os.listdir(NETWORKS)))), "rb").read()
    write("net.onnx", whole)
    write("cut.onnx", whole[:dice.randrange(len(whole))])
    odd = bytearray(whole)
    for _ in range(dice.randrange(1, 9)):
        odd[dice.randrange(len(odd))] = dice.randrange(256)
    write("odd.onnx", odd)
    for name in ("net.onnx", "net.onnx", "cut.onnx", "odd.onnx", "fifo", "loop", "dangling", "folder", "closed", "empty", "noise", "list.csv", "odd.csv", "array.npy",
                 "new", "typo.lock", "store"):
        yield path(name)
    yield from ("/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem", "/nonexistent/a", "\x1b[31m")


def network(dice, place, target):
    """Mostly of a network that is whole, or nearly."""
    models = [dice.choice(["net.onnx", "net.onnx", "odd.onnx", "cut.onnx"]), place()]
    command, more = dice.choice([("run", ["--output", "y=" + target()]), ("explain", []), ("verify", ["--bound", dice.choice(["1", "1e-9", "x"])]),
                                 ("bench", ["--min-time", "1ms", "--repeat", "1"]), ("bench", ["--min-time", "1ms", "--vs", "\x1b"])])
    given = ["--size", dice.choice(SIZES)] if dice.random() < 0.8 else ["--input", "x=" + place()]
    return ["network", command, dice.choice(models), *given, *(more if command == "bench" or dice.random() < 0.4 else [])]


def words(dice, places):
    """A command line."""
    place = lambda: dice.choice(places)
    target = lambda: dice.choice([p for p in places if not p.endswith("fifo")])  # a pipe's reader is waited for
    problem = lambda: [dice.choice(PROBLEMS)] if dice.random() < 0.7 else ["--suite", place()]
    some = lambda *options: [word for option in options if dice.random() < 0.3 for word in option]
    output = lambda: some(["--csv", target()], ["--json", target()], ["--json", "-"])
    limit = lambda: some(["--threads", dice.choice(["1", "2", "64", "0", "x"])], ["--kernel", dice.choice(PATTERNS)],
                         ["--skip", dice.choice(PATTERNS)], ["--workspace", dice.choice(["0", "1K", "x"])],
                         ["--device", dice.choice(["cpu", "gpu", "\x1b[2J"])])
    return dice.choice([
        lambda: ["explain"] + problem() + limit() + output(),
        lambda: ["find", "--budget", "50ms"] + problem() + limit() + output(),
        lambda: ["verify"] + problem() + limit() + output(),
        lambda: ["bench", "--min-time", "1ms", "--repeat", "1"] + problem() + limit() + output(),
        lambda: ["run", PROBLEMS[0], "--x", place(), "--w", place(), "--y", target(), "--check"],
        lambda: network(dice, place, target) + some(["--device", dice.choice(["cpu", "gpu"])], ["--threads", dice.choice(["2", "64"])]),
        lambda: network(dice, place, target) + some(["--dtype", dice.choice(["f32", "f16", "f64"])], ["--math", "fast"]),
        lambda: ["emit", "nki", dice.choice(PROBLEMS)] + some(["--output", target()]),
        lambda: ["store", "list"] + some(["trials"], ["\x1b"]) + output(),
        lambda: ["store", "export", target()] + some(["--lock"], ["--verdicts"]),
        lambda: ["store", "import", place()],
        lambda: ["store", "clear"] + some(["trials"]),
        lambda: ["devices"],
        lambda: [dice.choice(["--version", "--help", "benhc", "\x1b[2J", ""])],
    ])()


class Surroundings:
    """What the process has, and has not."""

    def __init__(self, dice, places):
        self.environment = dict(os.environ, FALTUNG_STORE=dice.choice(places) + dice.choice(["", "", ":readonly"]),
                                FALTUNG_KNOWN_DEVICES="none", OCL_ICD_VENDORS="/nonexistent")
        if dice.random() < 0.5:
            self.environment["FALTUNG_STORE"] = "store"
        for name, values in {"FALTUNG_TRUST": ["all", "none", "bogus"], "FALTUNG_LOG": ["find", "bogus"],
                             "FALTUNG_ONLY": PATTERNS[:4], "FALTUNG_DEADLINE": ["1", "x"]}.items():
            if dice.random() < 0.07:
                self.environment[name] = dice.choice(values)
        self.closed = [fd for fd in (0, 1, 2) if dice.random() < 0.08]
        self.out = dice.choice(["pipe", "pipe", "pipe", "/dev/full", "gone"])
        self.limit = dice.choice([None, None, (resource.RLIMIT_FSIZE, dice.choice([0, 100, 5000])),
                                  (resource.RLIMIT_NOFILE, dice.randrange(0, 12)),
                                  (resource.RLIMIT_AS, 2 ** dice.randrange(27, 33))])
        self.interrupt = dice.choice([None, None, None, signal.SIGINT, signal.SIGTERM, signal.SIGSTOP])

    def before(self):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        for fd in self.closed:
            os.close(fd)
        if self.limit:
            resource.setrlimit(self.limit[0], (self.limit[1], self.limit[1]))

    def __str__(self):
        return f"store {self.environment['FALTUNG_STORE']!r}, closed {self.closed}, output to {self.out}, limit {self.limit}"


def kinds(places):
    def kind(place):
        try:
            return stat.S_IFMT(os.lstat(place).st_mode)
        except OSError:
            return None
    return {place: kind(place) for place in places}


def run(faltung, line, around, folder):
    """The exit code (negative: the signal), and what it printed."""
    out = subprocess.PIPE
    if around.out == "/dev/full":
        out = os.open("/dev/full", os.O_WRONLY)
    while True:
        try:
            process = subprocess.Popen([faltung] + line, env=around.environment, cwd=folder, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=subprocess.PIPE, preexec_fn=around.before)
            break
        except BlockingIOError:  # the machine has no process to give: others have taken them
            time.sleep(0.05)
    if around.out == "/dev/full":
        os.close(out)
    if around.out == "gone":
        process.stdout.close()
        process.stdout = None
    if around.interrupt:
        time.sleep(random.random() * 0.1)
        process.send_signal(around.interrupt)
        if around.interrupt == signal.SIGSTOP:
            time.sleep(0.05)
            process.send_signal(signal.SIGCONT)
    try:
        printed, said = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, b"", b""
    return process.returncode, printed or b"", said or b""


def wrong(code, printed, said, around, before, after, line):
    if code is None:
        return "it does not end"
    ended_by_us = code == -around.interrupt if around.interrupt else False
    # The loader itself may lack memory or descriptors.
    loader = code == 127 or (around.limit and b"error while loading shared libraries" in said)
    if code < 0 and not ended_by_us and not (code == -signal.SIGPIPE and around.out == "gone"):
        return f"signal {-code} ended it"
    if code >= 0 and code not in (0, 1, 2, 130) and not loader:
        return f"exit code {code}"
    if code == 2 and 2 not in around.closed and not loader:
        last = said.decode(errors="replace").strip().split("\n")[-1]
        if not last.startswith("faltung: "):
            return f"no line says why: {said!r}"
    if b"internal error" in said:
        return f"an internal error: {said!r}"
    if b"\x1b" in said or (b"\x1b" in printed and "--csv" not in line and "--json" not in line):
        return "it prints a terminal's commands"
    if code == 0 and around.out == "/dev/full" and 1 not in around.closed and line[0] in ("devices", "--version", "--help"):
        return "it calls a table written that is not"
    for place, kind in before.items():
        if kind not in (None, stat.S_IFREG) and after[place] != kind:
            return f"{place} is no longer what it was"
        if place.endswith(".lock") and after[place] == stat.S_IFDIR:
            return f"it made a directory {place}"
    return None


def main():
    options = argparse.ArgumentParser()
    options.add_argument("faltung")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--turn", type=int, help="repeat the one that a message names")
    given = options.parse_args()
    faltung = os.path.abspath(given.faltung)
    begin, turn, found = time.monotonic(), given.turn or given.seed * 1000003, 0
    turns = 0
    while turns == 0 or (given.turn is None and time.monotonic() < begin + given.seconds and found < 5):
        dice = random.Random(turn)
        random.seed(turn)
        folder = tempfile.mkdtemp(prefix="faltung_hostile_")
        try:
            places = list(files(folder, dice))
            for _ in range(6):
                line, around, before = words(dice, places), Surroundings(dice, places), kinds(places)
                line = [os.fsencode(word).replace(b"\0", b"") for word in line]
                what = wrong(*run(faltung, line, around, folder), around, before, kinds(places),
                             [word.decode(errors="replace") for word in line])
                if what:
                    found += 1
                    print(f"commands: {line}: {what}; {around}: commands.py --turn {turn}", file=sys.stderr)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        turn += 1
        turns += 1
    print(f"commands: {6 * turns} commands, {found} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
