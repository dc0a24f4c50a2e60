"""faltung.report: the page has the tables' numbers and its pictures inside, and loads nothing from elsewhere."""
import html.parser
import json
import re
import shutil
import subprocess

import pytest

import faltung
import faltung.report

ROWS = [
    dict(name="first", problem="p1", kernel="direct_cpu/rows", ms=0.5, peer="onednn", peer_ms=1.25, ratio=2.5, tflops=0.12,
         gbps=3.5, ceiling_pct=61.0, error_over_bound=0.03),
    dict(name="second <&>", problem="p2", kernel="winograd_cpu/f4x4", ms=8.0, peer="onednn", peer_ms=6.4, ratio=0.8, tflops=0.31,
         gbps=1.5, ceiling_pct=120.0, error_over_bound=0.4),
    dict(name="declined", problem="p3", kernel="", ms="", ratio=""),
]
DOCTOR = {"devices": [{"device": "opencl:0", "description": "A device", "driver": "1.2", "matrix": {
    "direct_gpu": {"pass": 55, "declined": 2}, "winograd_gpu": {"pass": 7, "hang": 1}}}]}


class Layer:
    def __init__(self, name, ms, torch_ms, why=""):
        self.name, self.fused, self.ms, self.torch_ms, self.why, self.kernel = name, "conv+bn", ms, torch_ms, why, "direct_cpu/rows"
        self.kept, self.speedup, self.error, self.torch_error = not why, torch_ms / ms if ms else 0.0, 1e-7, 2e-7


class Patch:
    rows = [Layer("stem", 1.5, 3.0), Layer("head", 2.0, 1.0, "PyTorch is faster"), Layer("unused", 0.0, 0.0, "it did not run")]


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.cells, self.sources = [], [], []
        self.feed(text)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.sources += [value for name, value in attributes if name in ("src", "srcset", "href")]
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


def test_the_page_is_whole(tmp_path):
    pytest.importorskip("matplotlib")
    path = faltung.report.write(tmp_path / "out", title="Of <today>", bench=ROWS, patch=Patch(), doctor=DOCTOR)
    text = (tmp_path / "out" / "report.html").read_text()
    assert path.endswith("report.html") and "Of &lt;today&gt;" in text
    page = Page(text)
    for number in ("0.5", "1.25", "2.5", "8", "6.4", "0.8", "120.0", "0.03", "0.4", "55", "7", "1.5", "PyTorch is faster"):
        assert number in page.cells or f"{float(number):.4g}" in page.cells, number
    assert "second <&>" in page.cells and "declined" not in page.cells
    assert re.search(r"geometric mean 1\.41", text)
    pictures = sorted(p.name for p in (tmp_path / "out").glob("*.png"))
    names = ("doctor-0", "errors", "layers", "ratios", "roofline", "times")
    assert pictures == sorted(f"{name}-{scheme}.png" for name in names for scheme in ("light", "dark"))
    assert len(page.sources) == 2 * len(names) and all(s.startswith("data:image/png;base64,") for s in page.sources)
    assert all((tmp_path / "out" / name).read_bytes()[:4] == b"\x89PNG" for name in pictures)
    assert len({(tmp_path / "out" / name).read_bytes() for name in pictures}) == len(pictures)


def test_nothing_is_refused(tmp_path):
    for given in ({}, {"bench": [ROWS[2]]}):
        with pytest.raises(faltung.BadProblem):
            faltung.report.write(tmp_path, **given)


def test_a_bench_of_ones_own(tmp_path):
    pytest.importorskip("matplotlib")
    rows = faltung.bench("fwd:n1c8h16w16k8r3s3:pad1", threads=1, min_time="5ms", repeat=1)
    text = open(faltung.report.write(tmp_path, bench=rows), encoding="utf-8").read()
    assert f"{float(rows[0]['ms']):.4g}" in Page(text).cells


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium (Debian: chromium)")
def test_a_browser_shows_it(tmp_path):
    pytest.importorskip("matplotlib")
    path = faltung.report.write(tmp_path, bench=ROWS, patch=Patch(), doctor=DOCTOR)
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
                           "file://" + path], capture_output=True, text=True, timeout=120, check=True)
    assert "6.4" in done.stdout and "CONSOLE" not in done.stderr


def test_the_command_reads_what_the_others_wrote(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    bench, doctor = tmp_path / "bench.json", tmp_path / "doctor.json"
    bench.write_text(json.dumps(ROWS))
    doctor.write_text(json.dumps(DOCTOR))
    words = [str(tmp_path / "out"), "--bench", str(bench), "--doctor", str(doctor)]
    assert faltung.report.main(words) == 0
    assert capsys.readouterr().out == f"{tmp_path}/out/report.html\n"
    page = Page((tmp_path / "out" / "report.html").read_text())
    assert "first" in page.cells and "direct_gpu" in page.cells
    bench.write_text("ms,ratio")
    assert faltung.report.main(words) == 2
    assert "cannot be read as JSON" in capsys.readouterr().err
