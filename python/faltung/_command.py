"""What the bundled command does better than a library call: bench, verify and doctor, each in a process of its own."""
import csv
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
import warnings

from . import _c
from ._engine import FaltungWarning, _find_nvrtc, _milliseconds


def command():
    """The path of the faltung command that came with this package."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "faltung")
    if not os.access(path, os.X_OK):
        raise _c.BadFile(f"the package's command is not at {path}; install the package again")
    return path


def _run(words, peers=None):
    """What the command prints; exit code 1 means that a kernel was wrong, which the rows tell."""
    _find_nvrtc()
    environment = dict(os.environ)
    environment["FALTUNG_PEER_PATH"] = os.pathsep.join(filter(None, [peers, environment.get("FALTUNG_PEER_PATH")]))
    done = subprocess.run([command(), *words], capture_output=True, text=True, env=environment, check=False)
    lines = [line.removeprefix("faltung: ") for line in done.stderr.splitlines()]
    for line in lines:
        if line.startswith("warning: "):
            warnings.warn(line.removeprefix("warning: "), FaltungWarning, stacklevel=3)
    if done.returncode in (0, 1):
        return done.stdout
    said = [line for line in lines if not line.startswith("warning: ")]
    line = said[-1] if said else f"the command ended with {done.returncode}"
    raise (_c.BadProblem if done.returncode == 2 else _c.Error)(line)


def _write_torch_peers(folder):
    """PyTorch's adapters as programs that run in this very Python."""
    adapter = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "torch_peer.py")
    for name, mode in (("torch", "eager"), ("torch-compiled", "compiled"), ("torch-cudnn_relu", "cudnn_relu")):
        path = os.path.join(folder, f"faltung-peer-{name}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nFALTUNG_TORCH={mode} exec {shlex.quote(sys.executable)} {shlex.quote(adapter)}\n")
        os.chmod(path, 0o700)


def _problems(problem):
    return [problem] if isinstance(problem, str) else list(problem)


def _options(device, threads, only, skip):
    words = ["--device", str(device)]
    words += ["--threads", str(threads)] if threads else []
    for option, patterns in (("--kernel", only), ("--skip", skip)):
        for pattern in [patterns] if isinstance(patterns, str) else patterns or ():
            words += [option, pattern]
    return words


def _time(option, time):
    """Numbers are milliseconds, as in a request; to the command they would be seconds."""
    if time is None:
        return []
    return [option, f"{_milliseconds(option.lstrip('-').replace('-', '_'), time)!r}ms"]


def _rows(text):
    """CSV's rows as dictionaries, numbers as numbers."""
    def value(word):
        for kind in (int, float):
            try:
                return kind(word)
            except ValueError:
                pass
        return word
    return [{name: value(word) for name, word in row.items()} for row in csv.DictReader(io.StringIO(text))]


def bench(problem, device="cpu", *, vs=None, find=False, threads=0, only=None, skip=None, min_time=None, repeat=None):
    """Times the plan of one problem or several, checks its result, and with vs (``onednn``, ``torch``, ...) a peer library in
    turn with it, in one run. ``find``: measures the candidates first. ``min_time`` (milliseconds, or "200ms") and ``repeat``:
    how long each runs, in how many blocks. Returns a list of dictionaries with the columns of docs/bench.md: kernel, ms, tflops,
    peer_ms, ratio, ..."""
    words = ["bench", *_problems(problem), *_options(device, threads, only, skip), "--csv", "-"]
    words += ["--vs", vs] if vs else []
    words += ["--find"] if find else []
    words += _time("--min-time", min_time)
    words += ["--repeat", str(repeat)] if repeat is not None else []
    with tempfile.TemporaryDirectory() as folder:
        if vs and vs.startswith("torch"):
            _write_torch_peers(folder)
        return _rows(_run(words, folder))


def verify(problem, device="cpu", *, threads=0, only=None, skip=None, seed=None):
    """Runs every kernel that supports the problem against the reference: exact on small integers, then within the bound on
    random data. Returns a list of dictionaries: kernel, verdict, error_over_bound, ..."""
    words = ["verify", *_problems(problem), *_options(device, threads, only, skip), "--csv", "-"]
    words += ["--seed", str(seed)] if seed is not None else []
    return _rows(_run(words))


def emit(problem, target="trn2", *, output=None):
    """The problem's convolution as an NKI kernel for AWS's Trainium, a Python file's text; docs/trainium.md. ``target``: trn2 or
    trn1. ``output``: a path to write it to as well. What cannot be emitted raises BadProblem, which says what can."""
    text = _run(["emit", "nki", problem, "--target", target])
    if output is not None:
        try:
            with open(output, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise _c.BadFile(f"{output} cannot be written: {error.strerror}") from None
    return text


def doctor(device=None, budget=None):
    """Tries every kernel on a list of problems, on one device or on all, and returns the report as a dictionary, which is
    fit for a bug report. ``budget``: milliseconds, or such as "50s"."""
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "report")
        words = ["doctor", "--report", name]
        words += ["--device", str(device)] if device else []
        words += _time("--budget", budget)
        _run(words)
        with open(name + ".json", encoding="utf-8") as file:
            return json.load(file)
