"""DistributedDataParallel around a patched model, through gloo."""
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")


def test_gradients_are_those_of_the_whole_batch():
    process = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29519",
                              pathlib.Path(__file__).with_name("ddp.py")], capture_output=True, text=True, timeout=300)
    assert process.returncode == 0 and "of the whole batch" in process.stdout, process.stderr[-3000:]
    assert "do not match bucket view strides" not in process.stderr
