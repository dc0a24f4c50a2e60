"""Tests of the Python package: `pytest tests/python` with the package on the path (tests/python/run.sh)."""
import os
import tempfile

import pytest

# Before the library is loaded: a store of the tests' own.
os.environ.setdefault("FALTUNG_STORE", tempfile.mkdtemp(prefix="faltung-test-"))


@pytest.fixture
def np():
    return pytest.importorskip("numpy")
