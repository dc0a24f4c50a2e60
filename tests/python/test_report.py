"""faltung.report: the page has the tables' numbers and its pictures inside, and loads nothing from elsewhere."""
import csv
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
FIND = [
    dict(name="", problem="p1", device="cpu", kernel="direct_cpu/rows", verdict="chosen", why="", predicted_ms=0.61, ms=0.52, ceiling_pct=59.5,
         error_over_bound=0.031),
    dict(name="", problem="p1", device="cpu", kernel="winograd_cpu/f4x4", verdict="slower", why="1.50x the chosen one's time", predicted_ms=0.4,
         ms=0.78, ceiling_pct=39.1, error_over_bound=None),
    dict(name="", problem="p1", device="cpu", kernel="fft_cpu", verdict="declined", why="it is small", predicted_ms=None, ms=None, ceiling_pct=None,
         error_over_bound=None),
]
DOCTOR = {"devices": [{"device": "opencl:0", "description": "A device", "driver": "1.2", "matrix": {
    "direct_gpu": {"pass": 55, "declined": 2}, "winograd_gpu": {"pass": 7, "hang": 1}}}]}


def sweep(peer, times_as_slow):
    """One convolution of 3 x 3 in four sizes, the last of another padding, beside a peer."""
    rows = []
    for place, size in enumerate((32, 64, 128, 256)):
        ms = 0.1 * 4 ** place
        rows.append(dict(name=f"lux{size}", problem=f"fwd:n128c64h{size}w{size}k64r3s3{':pad1' * (size == 256)}:f32:nchw", device="cpu",
                         kernel="direct_cpu/rows", ms=ms, peer=peer, peer_ms=times_as_slow * ms, ratio=times_as_slow, tflops=0.25))
    return rows


class Layer:
    def __init__(self, name, ms, torch_ms, why=""):
        self.name, self.fused, self.ms, self.torch_ms, self.why, self.kernel = name, "conv+bn", ms, torch_ms, why, "direct_cpu/rows"
        self.kept, self.speedup, self.error, self.torch_error = not why, torch_ms / ms if ms else 0.0, 1e-7, 2e-7


class Patch:
    rows = [Layer("stem", 1.5, 3.0), Layer("head", 2.0, 1.0, "PyTorch is faster"), Layer("unused", 0.0, 0.0, "it did not run")]


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.sources, self.headings = [], [], [], []
        self.feed(text)
        assert not self.open, f"left open: {self.open}"
        self.cells = [cell for table in self.tables for row in table for cell in row]

    def handle_starttag(self, tag, attributes):
        self.sources += [value for name, value in attributes if name in ("src", "srcset", "href")]
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def tables_of_all():
    """What the page of ROWS, FIND, Patch and DOCTOR has in its tables, from what was given."""
    timed, layers = ROWS[:2], Patch.rows
    matrix = DOCTOR["devices"][0]["matrix"]
    return [
        [[r["name"], r["ms"], r["peer"], r["peer_ms"], r["ratio"], r["kernel"]] for r in timed],
        [[r["name"], r["ratio"]] for r in timed],
        [[r["name"], 1e3 * r["tflops"] / r["gbps"], r["tflops"], r["ceiling_pct"]] for r in timed],
        [[r["name"], r["ms"], r["error_over_bound"]] for r in timed],
        [[r["problem"], r["kernel"], r["verdict"], *(r[name] or "" for name in ("ms", "predicted_ms", "ceiling_pct", "error_over_bound")), r["why"]]
         for r in FIND],
        [[r.name, r.fused, r.ms, r.torch_ms, r.speedup, r.error, r.torch_error, r.why or r.kernel] for r in layers],
        [[family, *(counts.get(outcome, 0) for outcome in ("pass", "hang", "declined"))] for family, counts in matrix.items()],
    ]


def check(tables, expected):
    """Row by row; numbers to the four digits that are shown."""
    assert [len(table) - 1 for table in tables] == [len(rows) for rows in expected]
    for (head, *shown), rows in zip(tables, expected):
        for cells, values in zip(shown, rows):
            assert len(cells) == len(values) == len(head)
            for cell, value in zip(cells, values):
                assert cell == value if isinstance(value, str) else float(cell) == pytest.approx(value, rel=5e-4), (cells, values)


def write_all(folder):
    return faltung.report.write(folder, title="Of <today>", bench=ROWS, find=FIND, patch=Patch(), doctor=DOCTOR)


def test_the_page_is_whole(tmp_path):
    pytest.importorskip("matplotlib")
    path = write_all(tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    assert path.endswith("report.html") and "Of &lt;today&gt;" in text
    page = Page(text)
    check(page.tables, tables_of_all())
    assert "geometric means: onednn 1.41" in page.headings[1]
    pictures = sorted(p.name for p in (tmp_path / "out").glob("*.png"))
    names = ("doctor-0", "errors", "find", "layers", "ratios", "roofline", "times")
    assert pictures == sorted(f"{name}-{scheme}.png" for name in names for scheme in ("light", "dark"))
    assert len(page.sources) == 2 * len(names) and all(s.startswith("data:image/png;base64,") for s in page.sources)
    assert all((tmp_path / "out" / name).read_bytes()[:4] == b"\x89PNG" for name in pictures)
    assert len({(tmp_path / "out" / name).read_bytes() for name in pictures}) == len(pictures)


@pytest.fixture
def drawn(monkeypatch):
    """What each picture that is drawn has: its axes."""
    pytest.importorskip("matplotlib")
    kept = {}
    before = faltung.report._picture

    def picture(folder, name, heading, draw):
        return before(folder, name, heading, lambda axes, ink: (draw(axes, ink), kept.update({name: axes})))
    monkeypatch.setattr(faltung.report, "_picture", picture)
    return kept


def lines_of(axes):
    return {line.get_label(): list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines if not line.get_label().startswith("_")}


def test_each_peer_has_a_line_over_a_sweeps_work(tmp_path, drawn):
    """Two of them, rows in any order: absolute and relative times over GFLOP, both axes logarithmic."""
    rows = [row for pair in zip(sweep("onednn", 2.0), sweep("torch", 3.0)) for row in reversed(pair)]
    page = Page(open(faltung.report.write(tmp_path, bench=rows[::-1]), encoding="utf-8").read())
    work, times = [0.025 * 4 ** place for place in range(4)], [0.1 * 4 ** place for place in range(4)]
    for picture, expected in (("times", {"faltung": times, "onednn": [2 * t for t in times], "torch": [3 * t for t in times]}),
                              ("ratios", {"onednn / faltung": [2] * 4, "torch / faltung": [3] * 4})):
        lines, axes = lines_of(drawn[picture]), drawn[picture]
        assert axes.get_xscale() == axes.get_yscale() == "log" and axes.get_xlabel() == "GFLOP" and set(lines) == set(expected)
        for library, values in expected.items():
            assert lines[library] == [(pytest.approx(x), pytest.approx(y)) for x, y in zip(work, values)]
    assert "onednn 2.00" in page.headings[1] and "torch 3.00" in page.headings[1]
    check(page.tables[1:2], [[[f"lux{size}", 2, 3] if page.tables[1][0][1] == "onednn" else [f"lux{size}", 3, 2] for size in (256, 128, 64, 32)]])


@pytest.mark.parametrize("change", [dict(name="other", problem="fwd:n128c64h64w64k64r5s5:f32:nchw"), dict(tflops="")])
def test_what_is_no_sweep_stands_by_name(change, tmp_path, drawn):
    rows = sweep("onednn", 2.0)
    rows[1] = {**rows[1], **change}
    faltung.report.write(tmp_path, bench=rows)
    assert drawn["times"].get_xscale() == "linear" and [t.get_text() for t in drawn["times"].get_xticklabels()] == [r["name"] for r in rows]


def test_rows_of_two_devices_and_of_two_runs_are_not_mixed(tmp_path, drawn):
    other = [dict(row, device="cuda:0", ms=row["ms"] / 8) for row in sweep("onednn", 2.0)]
    faltung.report.write(tmp_path, bench=sweep("onednn", 2.0) + other)
    ours = [[y for _, y in lines_of(drawn[name])["faltung"]] for name in ("times-0", "times-1")]
    assert ours[0] == pytest.approx([8 * y for y in ours[1]])
    drawn.clear()
    faltung.report.write(tmp_path, bench=ROWS + [dict(ROWS[0], ms=0.25, ratio=5.0)])
    assert [y for _, y in lines_of(drawn["times"])["faltung"]] == [0.5, 8.0, 0.25]


def test_nothing_is_refused(tmp_path):
    for given in ({}, {"bench": [ROWS[2]]}, {"find": [ROWS[0]]}):
        with pytest.raises(faltung.BadProblem):
            faltung.report.write(tmp_path, **given)


def test_a_bench_of_ones_own(tmp_path):
    pytest.importorskip("matplotlib")
    rows = faltung.bench("fwd:n1c8h16w16k8r3s3:pad1", threads=1, min_time="5ms", repeat=1)
    text = open(faltung.report.write(tmp_path, bench=rows), encoding="utf-8").read()
    assert f"{float(rows[0]['ms']):.4g}" in Page(text).cells


def test_a_find_of_ones_own(tmp_path, drawn):
    """Choices, and what the command writes of them, as JSON and as CSV."""
    choice = faltung.find("fwd:n1c8h16w16k8r3s3:pad1", threads=1, budget="50ms")
    page = Page(open(faltung.report.write(tmp_path / "choice", find=choice), encoding="utf-8").read())
    reports = choice.reports
    assert [row[:3] for row in page.tables[0][1:]] == [[choice.problem, r.kernel, r.outcome] for r in reports]
    assert [float(row[3] or 0) for row in page.tables[0][1:]] == [pytest.approx(r.ms, rel=5e-4) for r in reports]
    lines = lines_of(drawn["find"])
    assert [y for _, y in lines["chosen"]] == [reports[0].ms] and len(lines["measured"]) == sum(r.ms > 0 for r in reports) - 1
    for ending in ("json", "csv"):
        file = tmp_path / f"found.{ending}"
        subprocess.run([faltung.command(), "find", "fwd:n1c8h16w16k8r3s3:pad1", "--threads", "1", "--budget", "50ms", f"--{ending}", file],
                       check=True, capture_output=True, timeout=120)
        assert faltung.report.main([str(tmp_path / ending), "--find", str(file)]) == 0
        page = Page((tmp_path / ending / "report.html").read_text())
        with open(file, encoding="utf-8", newline="") as text:  # which kernels a find of its own came to
            rows = json.load(text) if ending == "json" else list(csv.DictReader(text))
        assert [row[1] for row in page.tables[0][1:]] == [row["kernel"] for row in rows]
        assert [row[2] for row in page.tables[0][1:]].count("chosen") == 1


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium (Debian: chromium)")
def test_a_browser_shows_it(tmp_path):
    pytest.importorskip("matplotlib")
    path = write_all(tmp_path)
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
                           "file://" + path], capture_output=True, text=True, timeout=120, check=True)
    check(Page(done.stdout).tables, tables_of_all())
    assert "CONSOLE" not in done.stderr


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
