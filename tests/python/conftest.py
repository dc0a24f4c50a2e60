"""Tests of the Python package: `pytest tests/python` with the package on the path (tests/python/run.sh)."""
import os
import sys
import tempfile

import pytest

# Before the library is loaded: a store of the tests' own, gone with them.
if "FALTUNG_STORE" not in os.environ:
    store = tempfile.TemporaryDirectory(prefix="faltung-test-")
    os.environ["FALTUNG_STORE"] = store.name


@pytest.fixture
def np():
    return pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """PyTorch's convolutions in f32 on GPUs are of tf32 unless told otherwise, with three digits, and ours with them."""
    torch = sys.modules.get("torch")
    if torch is not None:
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
