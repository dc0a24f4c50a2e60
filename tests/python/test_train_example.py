"""examples/train_efficientnet.py, as anybody would run it, with sizes for a test: PyTorch's convolutions and faltung's learn alike."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train_efficientnet.py"
TIME = r"\s*\d+\.\d\d ms "
LINE = re.compile(rf"{TIME}cpy, {TIME}run,{TIME}build,{TIME}realize,{TIME}CL,\s*(\d+\.\d\d) loss,\s*\d+ tensors, \d+\.\d\d GB used,"
                  r"\s*\d+\.\d\d GFLOPS")
RIGHT = re.compile(r"right (\d+) -> (\d+) %")  # of the steps' first and last quarter
TINY = ["--device", "cpu", "--model", "b0", "--size", "32", "--classes", "2", "--batch", "16"]


def run(*words):
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_learn_alike():
    text = run(EXAMPLE, *TINY, "--with", "torch,all", "--steps", "12")
    losses = [float(m[1]) for m in LINE.finditer(text)]
    assert len(losses) == 24, text
    ours, theirs = losses[12:], losses[:12]
    assert abs(ours[0] - theirs[0]) < 0.02 and "all: 81 of 81" in text
    for way in (ours, theirs):
        assert sum(way[-3:]) < 0.7 * sum(way[:3]), text
    shares = [[int(share) for share in found.groups()] for found in RIGHT.finditer(text)]
    assert len(shares) == 2 and all(first + 20 <= last for first, last in shares), text


def test_several_processes():
    text = run("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517", EXAMPLE, *TINY, "--steps", "2",
               "--no-squeeze-excite", "--norm", "batch", "--with", "torch,all")
    assert len(LINE.findall(text)) == 4 and "2 processes" in text
    losses = [float(m[1]) for m in LINE.finditer(text)]
    assert abs(losses[0] - losses[2]) < 0.02 and abs(losses[1] - losses[3]) < 0.1
