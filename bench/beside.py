#!/usr/bin/env python3
"""Processes that prepare side by side on one GPU, each of which is timed while all others stand still. Compilers take minutes of a processor a
model; what they measure on the way to choose kernels runs alone on the GPU, and so does what is timed at last.

    bench/beside.py --limit 180 'bench/torch_models.py compile unet --vs reduce-overhead' 'bench/torch_networks.py …'
"""
import argparse
import contextlib
import ctypes
import fcntl
import functools
import hashlib
import importlib.util
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
PLACE = "FALTUNG_BENCH_PLACE"
READY = "prepared after"
SET_CHILD_SUBREAPER, GET_CHILD_SUBREAPER = 36, 37  # of prctl: whether processes whose parents have ended become this one's children
MOST_SECONDS = 10  # that a signal may take


@contextlib.contextmanager
def alone():
    """While no other process is in here; at once outside of run()."""
    if LOCK not in os.environ:
        yield
        return
    with open(os.environ[LOCK], "a") as file:
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
    """From now on, what PyTorch's compiler and, where it was imported, faltung.torch measure to choose their kernels. That compiler's workers
    give way to what measures, and to those of the jobs before this one."""
    if LOCK not in os.environ:
        return
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime.benchmarking import benchmarker
    if hasattr(pool := AsyncCompile.process_pool(), "process"):
        os.setpriority(os.PRIO_PROCESS, pool.process.pid, min(19, os.nice(0) + 4 + 4 * int(os.environ[PLACE])))
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


def stood_still():
    """Seconds for which what prepares has been stopped so far."""
    with contextlib.suppress(KeyError, OSError, ValueError):
        return float(pathlib.Path(os.environ[LOCK]).read_text())
    return 0.0


def assembler():
    """PyTorch's own, for the environment. Its compiler's workers take that one; the process whose they are takes Triton's unless told, so that nothing
    that they compiled is known to it, and each candidate is compiled a second time as it is measured, one after another (PyTorch 2.11)."""
    found = importlib.util.find_spec("torch")
    own = pathlib.Path(found.origin).parent / "bin" / "ptxas" if found and found.origin else None
    return {"TRITON_PTXAS_PATH": str(own)} if own and own.exists() and "TRITON_PTXAS_PATH" not in os.environ else {}


def processes():
    """{a process: its state's letter, its parent}"""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            found[int(folder.name)] = state, int(parent)
    return found


class Children:
    """A process a job, with all that it starts: sessions of their own, as PyTorch's compilers' workers have them, are no way out."""

    def __init__(self, jobs, cache):
        self.libc, before = ctypes.CDLL(None), ctypes.c_int()
        self.libc.prctl(GET_CHILD_SUBREAPER, ctypes.byref(before))
        self.was_subreaper = before.value
        self.libc.prctl(SET_CHILD_SUBREAPER, 1)
        folder, self.lines, self.children, self.since = pathlib.Path(cache).resolve(), queue.Queue(), {}, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = folder / "lock"
        self.lock.write_text("0")
        for place, job in enumerate(jobs):
            own = folder / (re.sub(r"[^\w.-]+", "_", job)[-60:] + "_" + hashlib.sha256(job.encode()).hexdigest()[:12])  # names have an end
            own.mkdir(exist_ok=True)
            more = {LOCK: str(self.lock), PLACE: str(place), "TORCHINDUCTOR_CACHE_DIR": str(own), "PYTHONUNBUFFERED": "1",
                    "TORCHINDUCTOR_COMPILE_THREADS": str(max(2, len(os.sched_getaffinity(0)))), **assembler()}
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

    def _is_orphan(self, process, jobs):
        """Of one of these jobs."""
        with contextlib.suppress(OSError):
            own = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            return f"{LOCK}={self.lock}".encode() in own and any(f"{PLACE}={place}".encode() in own for place in jobs)
        return False

    def _states(self, besides=None):
        """{a process: its state's letter} of all jobs but one, and of what they started."""
        found, started = processes(), {}
        for process, (_, parent) in found.items():
            started.setdefault(parent, []).append(process)
        children = {child.pid: job for job, child in self.children.items()}
        places = [place for place, job in enumerate(self.children) if job != besides]
        states, new = {}, [process for process in started.get(os.getpid(), []) if (
            children[process] != besides if process in children else self._is_orphan(process, places))]
        while new:
            states |= {process: found[process][0] for process in new}
            new = [other for process in new for other in started.get(process, []) if other not in states]
        return states

    def _signal(self, what, is_done, besides=None):
        """To all jobs but one, until each process's state, a letter, is_done: also of those that are started meanwhile."""
        end, seen_done = time.perf_counter() + MOST_SECONDS, 0
        while seen_done < 2 and time.perf_counter() < end:  # once might be before a process was listed whose parent has stopped since
            left = [process for process, state in self._states(besides).items() if state not in "ZX" and not is_done(state)]
            seen_done = 0 if left else seen_done + 1
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, what)
            if left:
                time.sleep(0.002)
        if seen_done < 2:
            print(f"some processes did not heed signal {what} within {MOST_SECONDS} s", file=sys.stderr, flush=True)

    def _stop(self, besides=None):
        self._signal(signal.SIGSTOP, lambda state: state in "Tt", besides)

    def go_on(self, job):
        """This one alone: the others are stopped, none of them while it measures."""
        with open(self.lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._stop(job)
        self.since = time.perf_counter()
        self.children[job].stdin.write("\n")
        self.children[job].stdin.flush()

    def all_go_on(self):
        self.lock.write_text(str(float(self.lock.read_text()) + time.perf_counter() - self.since))
        self._signal(signal.SIGCONT, lambda state: state != "T")

    def end(self):
        self._stop()  # so that none is started behind the back of what ends them
        ended = set(self._states())
        self._signal(signal.SIGKILL, lambda state: False)
        for child in self.children.values():
            child.wait()
        for process in ended:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
        self.libc.prctl(SET_CHILD_SUBREAPER, self.was_subreaper)


def run(jobs, limit, cache):
    """Commands, all at once, the first of them first where processors are short. As soon as one is prepared it is timed, while the others
    stand still; until the limit. cache: a folder, in which PyTorch's compiler keeps what it chose, a job."""
    own = signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    end, children = time.perf_counter() + limit, Children(jobs, cache)
    left, ready, timed = list(jobs), [], None
    try:
        while left and time.perf_counter() < end:
            if ready and timed is None:
                timed = ready.pop(0)
                children.go_on(timed)
            job, line = children.next(end)
            if job is None:
                continue
            if line is None:
                left.remove(job)
                if job == timed:
                    timed = None
                    children.all_go_on()
            elif line.startswith(READY):
                ready.append(job)
                print(f"{line}: {job}", flush=True)
            else:
                print(line, flush=True)
        for job in left:
            print(f"not done within {limit:.0f} s: {job}", flush=True)
    finally:
        children.end()
        signal.signal(signal.SIGTERM, own or signal.SIG_DFL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", help="commands")
    add_options(parser)
    options = parser.parse_args()
    run(options.jobs, options.limit, options.cache)


def add_options(parser):
    parser.add_argument("--limit", type=float, default=1800, help="side by side: seconds after which all end")
    parser.add_argument("--cache", default="build/inductor", help="side by side: where PyTorch's compiler keeps what it found")


if __name__ == "__main__":
    main()
