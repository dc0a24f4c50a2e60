"""Plans, choices, the command, and how calls behave: threads, signals, forks, time."""
import ctypes
import importlib.metadata
import inspect
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest

import faltung
from reference import conv2d, integers

PROBLEM = "fwd:n1c8h16w16k8r3s3:pad1"
ENVIRONMENT = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))


def python(code, **options):
    return subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=120, **options)


def installed(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def nvrtc():
    """That which what is known of devices was compiled by, or None."""
    from faltung._engine import _find_nvrtc
    _find_nvrtc()
    path, major, minor = os.environ.get("FALTUNG_NVRTC"), ctypes.c_int(), ctypes.c_int()
    if path is None or ctypes.CDLL(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)):
        return None
    return path if (major.value, minor.value) == (13, 0) else None


def test_what_is_known_of_devices_comes_as_an_extra(tmp_path):
    """The package has it where faltung-hopper is installed, and does without; the build folder has it."""
    is_there = installed("faltung-hopper") == faltung.__version__ if installed("faltung") else True
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "FALTUNG_KNOWN_DEVICES"}
    look = f"import faltung, pathlib; faltung.plan('{PROBLEM}'); print('/known_devices.pack' in pathlib.Path('/proc/self/maps').read_text())"
    told = subprocess.run([sys.executable, "-W", "error", "-c", look], env=environment, capture_output=True, text=True)
    assert (told.stdout, told.stderr) == (f"{is_there}\n", "")
    if nvrtc() is None:
        pytest.skip("there is no NVRTC 13.0, by which it was compiled")
    words = ["prepare", "fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:biasf32:relu", "--device", "nvrtc:sm_90a"]
    told = subprocess.run([faltung.command(), *words], capture_output=True, text=True,
                          env=environment | {"FALTUNG_NVRTC": nvrtc(), "FALTUNG_STORE": str(tmp_path / "store")}).stdout
    assert f"1 kernels ready, {int(not is_there)} compiled now" in told


def test_devices():
    cpu = faltung.devices()[0]
    assert cpu.id == cpu.kind == "cpu" and cpu.units >= 1 and cpu.memory_bytes > 0 and isinstance(cpu.features, tuple)


def test_a_plan_says_what_it_is():
    plan = faltung.plan(PROBLEM, only="direct_cpu", threads=1)
    assert plan.kernel.startswith("direct_cpu/") and plan.device == "cpu"
    assert plan.problem.startswith("fwd:n1c8h16w16k8r3s3:pad1") and plan.problem in repr(plan)
    with pytest.raises(faltung.BadProblem, match="groups"):
        faltung.plan("fwd:n1c3h8w8k4r3s3:g2")
    with pytest.raises(faltung.BadProblem):
        faltung.plan(PROBLEM, only="no_such_kernel")
    with pytest.raises(faltung.BadProblem, match="cuda:99"):
        faltung.plan(PROBLEM, "cuda:99")
    with pytest.raises(faltung.BadProblem, match="^problem 'xü{99}...': "):  # 200 bytes, none of which is half a letter
        faltung.plan("x" + "ü" * 200)
    with pytest.raises(TypeError):
        pickle.dumps(plan)
    with pytest.raises(TypeError):
        type(plan)()


def test_explain_and_find():
    explained = faltung.explain(PROBLEM, threads=1)
    assert explained.kernel == faltung.plan(PROBLEM, threads=1).kernel and explained.source == "model"
    chosen = [r for r in explained.reports if r.outcome == "chosen"]
    assert len(chosen) == 1 and chosen[0].kernel == explained.kernel and chosen[0].predicted_ms > 0
    assert any(r.outcome == "declined" and r.why for r in explained.reports)
    seen = []
    found = faltung.find(PROBLEM, threads=1, budget="40ms", progress=lambda done, total, kernel: seen.append((done, total, kernel)))
    assert seen and seen[0][0] == 0 and seen[0][1] >= len(seen) and "/" in seen[0][2]
    assert found.reports[0].ms > 0 and found.kernel == faltung.plan(PROBLEM, threads=1).kernel
    assert found.kernel in str(found)
    with pytest.raises(faltung.BadProblem, match="budget"):
        faltung.find(PROBLEM, budget="soon")


def test_progress_ends_a_find():
    with pytest.raises(faltung.Cancelled):
        faltung.find("fwd:n1c16h20w20k16r3s3:pad1", threads=1, budget="20s", progress=lambda *_: False)

    def fails(*_):
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        faltung.find("fwd:n1c16h20w20k16r3s3:pad1", threads=1, budget="20s", progress=fails)


def test_ctrl_c_ends_a_find():
    code = """
import faltung, sys, time
def progress(done, total, kernel):
    if done == 1:
        print("finding", flush=True)
begin = time.monotonic()
try:
    faltung.find("fwd:n2c32h40w40k32r3s3:pad1", threads=1, budget="100s", progress=progress)
except KeyboardInterrupt:
    print("interrupted after", time.monotonic() - begin)
    print(len([r for r in faltung.explain("fwd:n2c32h40w40k32r3s3:pad1", threads=1).reports if r.ms > 0]), "kept")
"""
    process = subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "finding\n"
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert rest.startswith("interrupted") and int(rest.split("\n")[1].split()[0]) >= 1


def test_calls_release_the_gil_and_may_overlap():
    x, w = integers(1, 1, 8, 16, 16).astype(np.float32), integers(2, 8, 8, 3, 3).astype(np.float32)
    plan = faltung.plan(PROBLEM, threads=1)
    right, wrong = conv2d(x, w, padding=(1, 1)), []

    def many():
        for _ in range(50):
            if not np.array_equal(plan(x, w), right):
                wrong.append(1)
    threads = [threading.Thread(target=many) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

    large = faltung.plan("fwd:n1c64h32w32k64r3s3:pad1", threads=1, only="reference_cpu")  # long enough to count beside it
    arrays = np.ones((1, 64, 32, 32), np.float32), np.ones((64, 64, 3, 3), np.float32)
    count, done = 0, []
    thread = threading.Thread(target=lambda: done.append(large(*arrays) is not None))
    thread.start()
    while thread.is_alive():
        count += 1
        time.sleep(0.001)
    assert done and count > 20, "this thread did not run beside the other's call"


def test_a_fork_computes():
    x, w = np.ones((1, 8, 16, 16), np.float32), np.ones((8, 8, 3, 3), np.float32)
    faltung.conv2d(x, w, padding=1)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if faltung.conv2d(x, w, padding=1)[0, 0, 5, 5] == 72 else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_thousand_shapes_do_not_grow():
    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def some(first, last):
        for n in range(first, last):
            x, w = np.ones((1, 2, 4, 4 + n), np.float32), np.ones((2, 2, 1, 1), np.float32)
            plan = faltung.plan(f"fwd:n1c2h4w{4 + n}k2r1s1", threads=1, only="direct_cpu,implicit_gemm_cpu")
            assert plan(x, w)[0, 0, 0, 0] == 2
    some(0, 1000)
    before = resident()
    some(0, 1000)
    some(1000, 2000)  # which are in place of the others
    assert resident() - before < 8e6


def test_warnings_are_pythons(tmp_path):
    code = """
import warnings, faltung
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    faltung.plan("fwd:n1c8h9w9k8r1s1")
    faltung.find("fwd:n1c8h9w9k8r1s1", budget="1ms", threads=1)
print(*(f"{w.category.__name__}: {w.message}" for w in seen), sep="\\n")
"""
    (tmp_path / "file").write_text("")
    done = subprocess.run([sys.executable, "-c", code], env=dict(ENVIRONMENT, FALTUNG_STORE=str(tmp_path / "file" / "store")),
                          capture_output=True, text=True, timeout=120)
    assert "FaltungWarning: " in done.stdout or done.returncode != 0, done


@pytest.mark.parametrize("worker, words", [("/nowhere/faltung", "which is no program"), ("/bin/true", "does not start"),
                                           ("/bin/false", "does not start")])
def test_a_worker_that_cannot_start_is_said(worker, words, tmp_path):
    """Where kernels must be tried before they are used."""
    code = f"import faltung\ntry:\n faltung.plan({PROBLEM!r}, threads=1)\nexcept NotImplementedError as e:\n print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, env=dict(
        ENVIRONMENT, FALTUNG_TRUST="none", FALTUNG_WORKER=worker, FALTUNG_STORE=str(tmp_path)))
    assert words in done.stdout and "no kernel can be used" in done.stdout


def test_a_worker_that_limits_do_not_allow_is_said():
    """As in a sandbox that allows no process more: one line, which says what would be right; what needs no trial is computed."""
    code = f"""
import os, resource, warnings
import faltung
if os.geteuid() == 0:  # whom no such limit holds
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    if not os.access(faltung.__file__, os.R_OK): raise SystemExit(77)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
warnings.simplefilter("error")
try: faltung.plan({PROBLEM!r}, threads=1)
except NotImplementedError as e: print(e)
print(faltung.plan({PROBLEM!r}, threads=1, trust="all").kernel)
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=dict(
            ENVIRONMENT, FALTUNG_TRUST="none", FALTUNG_STORE=os.path.join(folder, "store")))
    if done.returncode == 77:
        pytest.skip("the package lies where root alone may read")
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and not done.stderr, done
    assert all(words in lines[0] for words in ("no kernel can be used", "the worker does not start", "ulimit -a", "FALTUNG_TRUST=all"))


@pytest.mark.parametrize("named", ["/nowhere/libnvrtc.so", None])
def test_without_nvrtc_one_exception_says_what_would_be_right(named):
    """Of kernels for CUDA; the device needs no GPU. None named and none to be found is what a fresh machine has."""
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "FALTUNG_NVRTC"}
    code = "import faltung\ntry: faltung.explain('n1c8h8w8k8r1s1', device='nvrtc:sm_90a')\nexcept faltung.Unsupported as e: print(e)"
    run = subprocess.run([sys.executable, "-c", code], env=dict(environment, FALTUNG_NVRTC=named) if named else environment,
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stdout.count("\n") == 1, run.stderr
    if named:
        assert run.stdout.startswith(f"FALTUNG_NVRTC names {named}, which cannot be opened")
    elif "runs nothing" in run.stdout:
        pytest.skip("there is an NVRTC here")
    else:
        assert "pip install nvidia-cuda-nvrtc" in run.stdout and "FALTUNG_NVRTC" in run.stdout


def test_a_request_is_refused_in_words():
    for request, words in (({"workspace_limit": "64M"}, "workspace_limit is '64M'; it is a number of bytes"),
                           ({"workspace_limit": 1 << 70}, "it is a number of bytes"),
                           ({"deadline": "soon"}, "deadline is 'soon'; write a number of milliseconds")):
        with pytest.raises(faltung.BadProblem, match=words):
            faltung.plan(PROBLEM, **request)
    with pytest.raises(TypeError, match="a request has no thread; it has threads, "):
        faltung.plan(PROBLEM, thread=2)
    assert faltung.plan(PROBLEM, workspace_limit=np.int64(0)).workspace_bytes == 0


def test_times_are_written_alike():
    """As for the command, and numbers are milliseconds everywhere: for the command they would be seconds."""
    for deadline in ("1m", "1min", "60s", "60000ms", "6e7us", 60000):
        faltung.plan(PROBLEM, deadline=deadline)
    begin = time.monotonic()
    assert faltung.bench(PROBLEM, threads=1, min_time=5, repeat=1)[0]["verdict"] == "pass"
    assert time.monotonic() - begin < 4
    with pytest.raises(faltung.BadProblem, match="min_time is 'soon'"):
        faltung.bench(PROBLEM, min_time="soon")
    with pytest.raises(faltung.BadProblem, match="--repeat"):
        faltung.bench(PROBLEM, repeat=0)


def test_what_the_command_warns_of_is_warned_of(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FALTUNG_STORE", str(tmp_path / "file"))
    with pytest.warns(faltung.FaltungWarning, match="nothing is stored"):
        faltung.bench(PROBLEM, threads=1, min_time="5ms", repeat=1)


def test_the_command_in_the_package():
    listed = subprocess.run([faltung.command(), "explain", "--suite", "misa_top", "--threads", "1"], capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    assert faltung.__version__ in subprocess.run([faltung.command(), "--version"], capture_output=True, text=True).stdout
    assert faltung.__version__ in python("import sys; sys.argv = ['faltung', '--version']\nimport faltung.__main__ as m; m.main()").stdout
    kernel = faltung.emit("fwd:n1c8h8w8k8r3s3:f16:relu")
    compile(kernel, "kernel.py", "exec")
    assert "def convolution(x, w):" in kernel and "redicted" in kernel
    with pytest.raises(faltung.BadProblem, match="gradients"):
        faltung.emit("bwd_d:n1c8h8w8k8r3s3")
    rows = faltung.bench(PROBLEM, threads=1, min_time="5ms", repeat=1)
    assert len(rows) == 1 and rows[0]["ms"] > 0 and rows[0]["verdict"] == "pass"
    verdicts = {row["kernel"]: row["verdict"] for row in faltung.verify(PROBLEM, only="direct_cpu*")}
    assert verdicts["direct_cpu/rows"] == "pass" and set(verdicts.values()) == {"pass", "declined", "skipped"}
    with pytest.raises(faltung.BadProblem, match="groups"):
        faltung.bench("fwd:n1c3h8w8k4r3s3:g2")


def test_import_is_quick():
    times = []
    for _ in range(5):
        done = python("import time, sys; t = time.process_time(); import faltung; print(time.process_time() - t)")
        times.append(float(done.stdout))
    assert min(times) < 0.060, times


def test_a_call_is_light():
    """The host's share of a call into a given output: tiny work, the least of many blocks."""
    plan = faltung.plan("fwd:n1c1h1w1k1r1s1", threads=1)
    x, w, y = (np.ones((1, 1, 1, 1), np.float32) for _ in range(3))
    addresses = [a.ctypes.data for a in (x, w, y)] + [None] * 4

    def microseconds(call, runs=100):
        best = 1e9
        for _ in range(60):  # some block has the processor for itself
            begin = time.perf_counter()
            for _ in range(runs):
                call()
            best = min(best, (time.perf_counter() - begin) / runs * 1e6)
        return best
    by_address = microseconds(lambda: plan.run(*addresses))
    by_array = microseconds(lambda: plan(x, w, out=y))
    whole = microseconds(lambda: faltung.conv2d(x, w, out=y, threads=1))
    print(f"\nhost, us a call: by addresses {by_address:.2f}, plan on arrays {by_array:.2f}, conv2d {whole:.2f}")
    assert by_address < 20 and by_array < 40 and whole < 100  # far above what is meant, for a busy machine


def test_the_types_are_what_is_there():
    import stubs
    classes = stubs.check(faltung, extra=["report"])
    asked = {node.target.id for name in ("_Request", "_FindRequest") for node in classes[name].body if hasattr(node, "target")}
    assert asked | {"budget"} == set(inspect.signature(faltung._engine._question).parameters) - {"problem", "device", "unknown"}
