#!/usr/bin/env python3
"""Processes that prepare side by side on one GPU and are then timed one after the other. Compilers take minutes of a processor a model;
what they measure on the way to choose kernels runs alone on the GPU, and so does what is timed at last.

    bench/beside.py --prepare 100 --limit 180 'bench/torch_models.py compile unet --vs reduce-overhead' 'nice bench/torch_networks.py …'
"""
import argparse
import contextlib
import fcntl
import functools
import hashlib
import os
import pathlib
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

LOCK = "FALTUNG_BENCH_LOCK"
READY = "prepared after"


@contextlib.contextmanager
def alone():
    """While no other process is in here; at once outside of run()."""
    if LOCK not in os.environ:
        yield
        return
    with open(os.environ[LOCK], "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    time.sleep(0.002)  # or this process might have it again before those that wait


def _alone(function):
    @functools.wraps(function)
    def inner(*arguments, **keywords):
        with alone():
            return function(*arguments, **keywords)
    return inner


def measure_alone():
    """From now on, what PyTorch's compiler and, where it was imported, faltung.torch measure to choose their kernels."""
    if LOCK not in os.environ:
        return
    from torch._inductor.runtime.benchmarking import benchmarker
    type(benchmarker).benchmark_gpu = _alone(type(benchmarker).benchmark_gpu)
    for name in [name for name in sys.modules if name.startswith("faltung.torch.")]:
        for function in ("time_in_turn", "time_whole"):
            if hasattr(sys.modules[name], function):
                setattr(sys.modules[name], function, _alone(getattr(sys.modules[name], function)))


@contextlib.contextmanager
def turn(begin=time.perf_counter()):
    """Says that this process is prepared, waits for its turn, and has it alone; of run() alone."""
    if LOCK not in os.environ:
        yield
        return
    print(f"{READY} {time.perf_counter() - begin:.0f} s", flush=True)
    input()
    with alone():
        yield


class Children:
    def __init__(self, jobs, cache):
        folder, self.lines = pathlib.Path(cache).resolve(), queue.Queue()
        threads = max(2, 2 * len(os.sched_getaffinity(0)) // len(jobs))
        self.children = {}
        for job in jobs:
            own = folder / (re.sub(r"[^\w.-]+", "_", job)[-60:] + "_" + hashlib.sha256(job.encode()).hexdigest()[:12])  # names have an end
            own.mkdir(parents=True, exist_ok=True)
            more = {LOCK: str(folder / "lock"), "TORCHINDUCTOR_CACHE_DIR": str(own), "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
                    "PYTHONUNBUFFERED": "1"}
            self.children[job] = subprocess.Popen(shlex.split(job), env=os.environ | more, text=True, start_new_session=True,
                                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            threading.Thread(target=self._read, args=(job,), daemon=True).start()

    def _read(self, job):
        for line in self.children[job].stdout:
            self.lines.put((job, line.rstrip()))
        self.lines.put((job, None))

    def next(self, until):
        """The next line and whose it is; None for one that has ended, or twice when it is time."""
        try:
            return self.lines.get(timeout=max(0.01, until - time.perf_counter()))
        except queue.Empty:
            return None, None

    def go_on(self, job):
        self.children[job].stdin.write("\n")
        self.children[job].stdin.flush()

    def end(self):
        for child in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def run(jobs, prepare, limit, cache):
    """Commands, all at once. After so many seconds, or when all are prepared, those that are go on one after the other, and the rest as they
    come, until the limit. cache: a folder, in which PyTorch's compiler keeps what it chose, a job."""
    own = signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    begin, children = time.perf_counter(), Children(jobs, cache)
    preparing, ready, timed = list(jobs), [], None
    try:
        while (preparing or ready or timed) and time.perf_counter() < begin + limit:
            if ready and timed is None and (not preparing or time.perf_counter() >= begin + prepare):
                timed = ready.pop(0)
                children.go_on(timed)
            is_late = timed is not None or time.perf_counter() >= begin + prepare
            job, line = children.next(begin + (limit if is_late else prepare))
            if job is None:
                continue
            if line is not None:
                print(f"{line}: {job}" if line.startswith(READY) else line, flush=True)
            if job in preparing and (line is None or line.startswith(READY)):
                preparing.remove(job)
                ready += [job] * (line is not None)
            elif line is None and job == timed:
                timed = None
        for job in (*preparing, *ready, *[timed] * (timed is not None)):
            print(f"not done within {limit:.0f} s: {job}", flush=True)
    finally:
        children.end()
        signal.signal(signal.SIGTERM, own or signal.SIG_DFL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", help="commands")
    add_options(parser)
    options = parser.parse_args()
    run(options.jobs, options.prepare, options.limit, options.cache)


def add_options(parser):
    parser.add_argument("--prepare", type=float, default=900, help="side by side: seconds after which those that are compiled are timed")
    parser.add_argument("--limit", type=float, default=1800, help="side by side: seconds after which all end")
    parser.add_argument("--cache", default="build/inductor", help="side by side: where PyTorch's compiler keeps what it found")


if __name__ == "__main__":
    main()
