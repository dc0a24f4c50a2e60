"""The code of docs/python.md runs as it stands there, from top to bottom."""
import pathlib
import re

import pytest

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"


def blocks(text):
    return [(text[:match.start()].count("\n") + 2, match[1]) for match in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)]


def run(parts):
    names = {}
    for line, code in parts:
        exec(compile("\n" * (line - 1) + code, str(DOCUMENT), "exec"), names)


def split():
    if not DOCUMENT.exists():
        pytest.skip("the tests lie outside of the repository")
    text = DOCUMENT.read_text(encoding="utf-8")
    all_blocks = blocks(text)
    torch_from = text[:text.index("## PyTorch")].count("\n")
    return [b for b in all_blocks if b[0] < torch_from], [b for b in all_blocks if b[0] > torch_from]


def test_arrays_and_plans(capsys):
    numpy_blocks, _ = split()
    assert len(numpy_blocks) >= 6
    run(numpy_blocks)
    assert "w has 32 input channels a group" in capsys.readouterr().out


def test_torch(capsys):
    pytest.importorskip("torch")
    _, torch_blocks = split()
    assert len(torch_blocks) >= 2
    run(torch_blocks)
    assert "times as fast" in capsys.readouterr().out
