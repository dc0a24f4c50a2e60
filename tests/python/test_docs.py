"""The code of the documents runs as it stands there, from top to bottom; that behind "## PyTorch" where there is a PyTorch."""
import pathlib
import re

import pytest

DOCUMENTS = pathlib.Path(__file__).resolve().parents[2] / "docs"
NAMES = ["python.md", "python_tutorial.md", "slow_model.md"]
if not DOCUMENTS.exists():
    pytest.skip("the tests lie outside of the repository", allow_module_level=True)


def blocks(name):
    """(line, code) of all, in front of "## PyTorch" and behind it."""
    text = (DOCUMENTS / name).read_text(encoding="utf-8")
    found = [(text[:match.start()].count("\n") + 2, match[1]) for match in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)]
    torch_from = text[:text.index("## PyTorch")].count("\n")
    return [b for b in found if b[0] < torch_from], [b for b in found if b[0] > torch_from]


def run(name, parts):
    names = {}
    for line, code in parts:
        exec(compile("\n" * (line - 1) + code, str(DOCUMENTS / name), "exec"), names)


def test_readme(capsys):
    text = (DOCUMENTS.parent / "README.md").read_text(encoding="utf-8")
    code, = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    exec(compile(code, "README.md", "exec"), {})
    assert "chosen" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_arrays_and_plans(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts, _ = blocks(name)
    if not parts:
        pytest.skip("all of it needs PyTorch")
    assert len(parts) >= 6
    run(name, parts)
    if name == "python.md":
        assert "w has 32 input channels a group" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_torch(name, capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    _, parts = blocks(name)
    assert len(parts) >= 2
    run(name, parts)
    assert "times as fast" in capsys.readouterr().out
