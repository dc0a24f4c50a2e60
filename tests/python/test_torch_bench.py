"""bench/torch_models.py and bench/beside.py: that they time what they say, on a model of two convolutions on the CPU."""
import os
import pathlib
import re
import signal
import sys

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
if not BENCH.exists():
    pytest.skip("the tests lie outside of the repository", allow_module_level=True)
sys.path.insert(0, str(BENCH))
import beside  # noqa: E402
import torch_models  # noqa: E402
import torch_zoo  # noqa: E402


def tiny():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))


@pytest.fixture
def bench(monkeypatch, capsys):
    monkeypatch.setitem(torch_zoo.MODELS, "tiny", (tiny, 2, 12))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["torch_models.py", *words, "--device", "cpu"])
        torch_models.main()
        return capsys.readouterr().out
    return run


def test_functions_are_timed_in_turn():
    calls = []
    a, b = torch_models.timed([lambda: calls.append("a"), lambda: calls.append("b")], "cpu", repeat=3)
    assert a > 0 and b > 0
    assert len(re.findall("a+b+", "".join(calls))) >= 4  # to warm up, and a block each


@pytest.mark.parametrize("more", [(), ("--to", "nhwc")], ids=str)
def test_patch(bench, more):
    line = bench("patch", "tiny", "--layout", "nchw", *more)
    assert re.search(r"patch tiny nchw( to nhwc)?: [\d.]+ -> [\d.]+ ms, [\d.]+ times as fast; .* [0-2] of 2 convolutions", line)


def test_train(bench):
    lines = bench("train", "tiny", "--parts").splitlines()
    assert re.fullmatch(r"train tiny nhwc, batch 2: [\d.]+ -> [\d.]+ ms, [\d.]+ times as fast; [0-2] of 2 convolutions", lines[0])
    assert re.fullmatch(r"train tiny nhwc, batch 2: host [\d.]+ \+ [\d.]+ -> [\d.]+ \+ [\d.]+ ms", lines[1])


JOB = """
import sys, time
sys.path.insert(0, {folder!r})
import beside
with beside.turn():
    print("begin", flush=True)
    time.sleep(0.2)
    print("end", flush=True)
"""

AFTER = """
import os, time
while not os.path.exists("began"):
    time.sleep(0.01)
"""

PREPARING = """
import sys, time
sys.path.insert(0, {folder!r})
import beside
ticks = [time.perf_counter()]
open("began", "w")
while ticks[-1] < ticks[0] + 20 and beside.stood_still() == 0:
    time.sleep(0.01)
    with beside.alone():
        ticks.append(time.perf_counter())
ticks.append(time.perf_counter())
print("longest", max(b - a for a, b in zip(ticks, ticks[1:])), "stood still", beside.stood_still(), flush=True)
"""


def written(folder, name, text):
    (folder / name).write_text(text.format(folder=str(BENCH)))
    return f"{sys.executable} {folder / name}"


def test_what_is_prepared_has_its_turn_alone(tmp_path, capfd):
    job = written(tmp_path, "job.py", JOB)
    before = signal.getsignal(signal.SIGTERM)
    beside.run([f"{job} {i} {'x' * 300}" for i in range(3)], 120, tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before
    lines = [line for line in capfd.readouterr().out.splitlines() if line in ("begin", "end")]
    assert lines == ["begin", "end"] * 3


def test_what_prepares_stands_still_while_another_is_timed(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    beside.run([written(tmp_path, "preparing.py", PREPARING), written(tmp_path, "job.py", AFTER + JOB)], 60, tmp_path)
    longest, stood = map(float, re.search(r"longest (\S+) stood still (\S+)", capfd.readouterr().out).groups())
    assert longest >= stood >= 0.2


TICKING = """
import os, sys, time
while True:
    with open(sys.argv[1], "a") as file:
        print(os.getpid(), time.perf_counter(), file=file)
    time.sleep(0.005)
"""

STARTING = """
import subprocess, sys
subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=subprocess.DEVNULL)
"""

COUNTING = """
import subprocess, sys, time
sys.path.insert(0, {folder!r})
import beside
subprocess.Popen([sys.executable, "ticking.py", "of_child"], start_new_session=True, stdout=subprocess.DEVNULL)
subprocess.run([sys.executable, "starting.py", sys.executable, "ticking.py", "of_orphan"])
end = time.perf_counter() + 20
while time.perf_counter() < end and beside.stood_still() == 0:
    time.sleep(0.01)
time.sleep(0.2)
"""

TIMED = """
import os, sys, time
sys.path.insert(0, {folder!r})
import beside
while not (os.path.exists("of_child") and os.path.exists("of_orphan")):
    time.sleep(0.01)
with beside.turn():
    begin = time.perf_counter()
    time.sleep(0.3)
    print("between", begin, time.perf_counter(), flush=True)
"""


def test_what_a_job_starts_stands_still_and_ends_with_it(tmp_path, capfd, monkeypatch):
    """In sessions of their own, one of them an orphan."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "ticking.py", TICKING), written(tmp_path, "starting.py", STARTING)
    beside.run([written(tmp_path, "counting.py", COUNTING), written(tmp_path, "timed.py", TIMED)], 60, tmp_path)
    begin, end = map(float, re.search(r"between (\S+) (\S+)", capfd.readouterr().out).groups())
    for file in ("of_child", "of_orphan"):
        lines = [line.split() for line in (tmp_path / file).read_text().splitlines()]
        ticks = [float(words[1]) for words in lines if len(words) == 2]
        assert ticks[0] < begin and ticks[-1] > end and not [t for t in ticks if begin < t < end], file
        with pytest.raises(ProcessLookupError):
            os.kill(int(lines[0][0]), 0)
