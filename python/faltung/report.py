"""Pictures of what was measured: one HTML page that needs nothing else, and its PNG files (needs matplotlib).

::

    rows = faltung.bench(problems, vs="onednn")
    faltung.report.write("out", bench=rows, patch=patched, doctor=faltung.doctor())

Or of what the command wrote: ``python3 -m faltung.report out --bench bench.json --find find.csv --doctor report.json``.

Colours are told apart by people with any colour vision; each picture is drawn for light and for dark pages.
"""
import argparse
import base64
import collections
import html
import io
import itertools
import json
import math
import os
import re
import sys
from typing import Any

from ._c import BadFile, BadProblem, Error

_BLUE, _ORANGE, _GREEN, _GREY = "#0072b2", "#d55e00", "#009e73", "#888888"  # Okabe and Ito's
_LINES = ((_BLUE, "o-"), (_ORANGE, "s--"), (_GREEN, "^:"), ("#cc79a7", "D-."), ("#56b4e9", "v-"), ("#e69f00", "P--"))
_SCHEMES = {"light": ("#ffffff", "#222222", "#dddddd"), "dark": ("#16181c", "#e6e6e6", "#3a3d43")}
_VERDICTS = ("pass", "slow", "wrong", "out of bounds", "hang", "crash", "declined")


def write(folder: Any, *, title: str = "faltung", bench: Any = None, find: Any = None, patch: Any = None, doctor: Any = None) -> str:
    """Writes ``folder/report.html`` and the pictures beside it, and returns the page's path.

    ``bench``: rows of :func:`faltung.bench`, of one peer or several, one after the other; ``find``: what :func:`faltung.find` returned,
    or a list of such, or the command's rows; ``patch``: what :func:`faltung.torch.patch` returned; ``doctor``: what
    :func:`faltung.doctor` returned. At least one of them."""
    parts = []
    if bench:
        parts += _on_each_device(_bench_parts, _read_bench(bench))
    if find:
        parts += _on_each_device(_find_parts, _read_find(find))
    if patch is not None:
        parts += _patch_parts(patch.rows)
    if doctor is not None:
        parts += _doctor_parts(doctor)
    if not parts:
        raise BadProblem("the report is of nothing: give rows of faltung.bench, what faltung.find found, a patch or doctor's report")
    os.makedirs(folder, exist_ok=True)
    sections = []
    for name, heading, draw, head, table in parts:
        sections.append(f"<h2>{html.escape(heading)}</h2>")
        if draw is not None:
            sections.append(_picture(folder, name, heading, draw))
        sections.append(_table(head, table))
    path = os.path.join(folder, "report.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_PAGE.replace("TITLE", html.escape(title)).replace("BODY", "\n".join(sections)))
    return path


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>TITLE</title><meta name="color-scheme" content="light dark">
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
img { max-width: 100%; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
td, th { padding: .15rem .6rem; border-bottom: 1px solid #8884; text-align: right; } td:first-child, th:first-child { text-align: left; }
.wide { overflow-x: auto; }
</style></head><body><h1>TITLE</h1>
BODY
</body></html>
"""


def _picture(folder, name, heading, draw):
    """Draws for both schemes; PNG files, and in the page."""
    import matplotlib
    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure
    encoded = {}
    for scheme, (paper, ink, lines) in _SCHEMES.items():
        style = {"figure.facecolor": paper, "axes.facecolor": paper, "savefig.facecolor": paper, "text.color": ink,
                 "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink, "axes.edgecolor": lines, "grid.color": lines,
                 "axes.grid": True, "axes.axisbelow": True, "font.size": 9, "legend.frameon": False}
        with matplotlib.rc_context(style):
            figure = Figure(figsize=(9, 4.5), dpi=110, layout="tight")
            draw(figure.add_subplot(), ink)
            memory = io.BytesIO()
            figure.savefig(memory, format="png")
        with open(os.path.join(folder, f"{name}-{scheme}.png"), "wb") as file:
            file.write(memory.getvalue())
        encoded[scheme] = "data:image/png;base64," + base64.b64encode(memory.getvalue()).decode()
    return (f'<picture><source media="(prefers-color-scheme: dark)" srcset="{encoded["dark"]}">'
            f'<img src="{encoded["light"]}" alt="{html.escape(heading)}"></picture>')


def _word(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(head, rows):
    def cells(row, tag):
        return "".join(f"<{tag}>{html.escape(_word(value))}</{tag}>" for value in row)
    body = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells(head, "th")}</tr>\n{body}</table></div>'


# ----------------------------------------------------------------------------------------- bench and find

def _named(row):
    return dict(row, name=str(row.get("name") or row["problem"]))


def _read_bench(rows):
    """Rows that were timed, with a name each."""
    timed = [_named(row) for row in rows if _is_number(row.get("ms"))]
    if not timed:
        raise BadProblem("no row of the bench has a time; rows are what faltung.bench returns")
    seen = collections.Counter()
    for row in timed:
        what = *_key(row), row.get("device"), row.get("peer")
        row["turn"] = seen[what]
        seen[what] += 1
    return timed


def _read_find(found):
    """Rows as the command writes them, one a kernel."""
    rows = []
    for one in [found] if hasattr(found, "reports") else found:
        rows += [dict(report._asdict(), problem=one.problem, device=one.device, verdict=report.outcome) for report in one.reports] \
            if hasattr(one, "reports") else [one]
    if not all("kernel" in row and "predicted_ms" in row for row in rows):
        raise BadProblem("find is not what faltung.find returned, nor rows of the command's find")
    return [_named(row) for row in rows]


def _is_number(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def _on_each_device(parts_of, rows):
    """Pictures of one device each: times of two are no library's line."""
    devices = list(dict.fromkeys(str(row.get("device", "")) for row in rows))
    parts = []
    for number, device in enumerate(devices):
        own = parts_of([row for row in rows if str(row.get("device", "")) == device])
        parts += own if len(devices) == 1 else [(f"{name}-{number}", f"{device}: {heading}", *rest) for name, heading, *rest in own]
    return parts


def _key(row):
    """Which convolution, and the how manieth time it was timed; rows of two peers have one."""
    return row["name"], row.get("problem"), row.get("turn", 0)


class _Abscissa:
    """Where rows stand: at their work where they are one convolution in many sizes, or else side by side, by name."""

    def __init__(self, rows):
        self.names = list(dict.fromkeys(map(_key, rows)))
        work = {_key(row): float(f"{row['tflops'] * row['ms']:.4g}") for row in reversed(rows) if _is_number(row.get("tflops"))}
        kinds = {re.sub(r"([ncdhwk])\d+|:pad[^:]*", r"\1", row.get("problem") or row["name"]) for row in rows}
        self.is_work = len(kinds) == 1 and len(set(work.values())) > 2 and len(work) == len(self.names) and max(work.values()) >= 4 * min(work.values())
        self.of = work if self.is_work else {key: place for place, key in enumerate(self.names)}

    def line(self, axes, points, label, colour, style):
        axes.plot(*zip(*sorted((self.of[key], value) for key, value in points.items())), style, color=colour, label=label)

    def finish(self, axes):
        if self.is_work:
            axes.set_xscale("log")
            _log(axes.xaxis)
            axes.set_xlabel("GFLOP")
        else:
            axes.set_xticks(range(len(self.names)), [key[0] for key in self.names], rotation=60, ha="right", fontsize=7)


def _bench_parts(rows):
    compared = [row for row in rows if _is_number(row.get("ratio"))]
    parts = []
    if compared:
        at, times, ratios = _Abscissa(compared), {"faltung": {}}, {}
        for row in compared:
            peer = str(row.get("peer") or "the peer")
            times["faltung"].setdefault(_key(row), row["ms"])  # timed in turn with each of them, of which the first is drawn
            times.setdefault(peer, {})[_key(row)] = row["peer_ms"]
            ratios.setdefault(peer, {})[_key(row)] = row["ratio"]
        means = ", ".join(f"{peer} {math.exp(sum(map(math.log, own.values())) / len(own)):.2f}" for peer, own in ratios.items())
        work = [(at.of[_key(row)],) * at.is_work for row in compared]
        parts.append(("times", f"Times of {', '.join(times)}", lambda axes, ink: _draw_times(axes, times, at),
                      ("row", *["GFLOP"] * at.is_work, "ms", "peer", "its ms", "ratio", "kernel"),
                      [(r["name"], *w, float(r["ms"]), str(r.get("peer") or "the peer"), float(r["peer_ms"]), float(r["ratio"]), r["kernel"])
                       for r, w in zip(compared, work)]))
        parts.append(("ratios", f"Others' times over ours, geometric means: {means}", lambda axes, ink: _draw_ratios(axes, ratios, at, ink),
                      ("row", *ratios), [(key[0], *(own.get(key, "") for own in ratios.values())) for key in at.names]))
    placed = [row for row in rows if _is_number(row.get("tflops")) and _is_number(row.get("gbps"))]
    if placed:
        parts.append(("roofline", "Operations a second over operations a byte; above each row what the device allows",
                      lambda axes, ink: _draw_roofline(axes, placed),
                      ("row", "FLOP a byte", "TFLOP/s", "% of the ceiling"),
                      [(r["name"], 1e3 * r["tflops"] / r["gbps"], float(r["tflops"]), r.get("ceiling_pct", "")) for r in placed]))
    checked = [row for row in rows if _is_number(row.get("error_over_bound"))]
    if checked:
        parts.append(("errors", "Error, in units of the bound that is promised, beside time", lambda axes, ink: _draw_errors(axes, checked),
                      ("row", "ms", "error over bound"), [(r["name"], float(r["ms"]), float(r["error_over_bound"])) for r in checked]))
    return parts


def _find_parts(rows):
    measured = [row for row in rows if _is_number(row.get("ms"))]
    numbers = "ms", "predicted_ms", "ceiling_pct", "error_over_bound"
    return [("find", "What find measured, and which kernels it chose", (lambda axes, ink: _draw_find(axes, measured)) if measured else None,
             ("row", "kernel", "verdict", "ms", "predicted ms", "% of the ceiling", "error over bound", "why"),
             [(r["name"], r["kernel"], r["verdict"], *(r[name] if _is_number(r.get(name)) else "" for name in numbers), r.get("why") or "")
              for r in rows])]


def _log(axis):
    """A logarithmic axis with plain numbers."""
    def between(value, _):
        low, high = axis.get_view_interval()
        return f"{value:g}" if high < 5 * low or f"{value:e}"[0] in "25" else ""
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(between)


def _draw_times(axes, times, at):
    for (library, points), (colour, style) in zip(times.items(), itertools.cycle(_LINES)):
        at.line(axes, points, library, colour, style)
    axes.set_yscale("log")
    _log(axes.yaxis)
    axes.set_ylabel("ms")
    at.finish(axes)
    axes.legend()


def _draw_ratios(axes, ratios, at, ink):
    axes.axhline(1, color=ink, linewidth=1)
    if len(ratios) == 1 and not at.is_work:
        (points,) = ratios.values()
        axes.bar([at.of[key] for key in points], [ratio - 1 for ratio in points.values()], bottom=1,
                 color=[_BLUE if ratio >= 1 else _ORANGE for ratio in points.values()])
    else:
        for (peer, points), (colour, style) in zip(ratios.items(), itertools.cycle(_LINES[1:])):
            at.line(axes, points, f"{peer} / faltung", colour, style)
        axes.legend()
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}")
    axes.grid(True, axis="y", which="both")
    axes.set_ylabel("times as fast")
    at.finish(axes)


def _draw_find(axes, rows):
    at = _Abscissa(rows)
    for is_chosen, colour, label in ((False, _GREY, "measured"), (True, _BLUE, "chosen")):
        own = [row for row in rows if (row["verdict"] == "chosen") == is_chosen]
        axes.plot([at.of[_key(row)] for row in own], [row["ms"] for row in own], "o", color=colour, label=label)
    axes.set_yscale("log")
    _log(axes.yaxis)
    axes.set_ylabel("ms")
    at.finish(axes)
    axes.legend()


def _draw_roofline(axes, rows):
    for row in rows:
        intensity = 1e3 * row["tflops"] / row["gbps"]
        if _is_number(row.get("ceiling_pct")):
            axes.plot([intensity] * 2, [row["tflops"], 100 * row["tflops"] / row["ceiling_pct"]], color=_GREY, linewidth=1)
            axes.plot(intensity, 100 * row["tflops"] / row["ceiling_pct"], "_", color=_GREY, markersize=12)
        axes.plot(intensity, row["tflops"], "o", color=_BLUE)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP a byte")
    axes.set_ylabel("TFLOP/s")


def _draw_errors(axes, rows):
    axes.loglog([row["ms"] for row in rows], [row["error_over_bound"] for row in rows], "o", color=_GREEN)
    axes.axhline(1, color=_ORANGE, linestyle="--", label="the bound")
    axes.set_xlabel("ms")
    axes.set_ylabel("error over bound")
    axes.legend()


# ------------------------------------------------------------------------------------- patch and doctor

def _patch_parts(rows):
    timed = [row for row in rows if row.ms > 0]

    def draw(axes, ink):
        for place, (label, times) in enumerate((("PyTorch", [r.torch_ms for r in timed]),
                                                ("patched", [r.ms if r.kept else r.torch_ms for r in timed]))):
            left = 0.0
            for row, ms in zip(timed, times):
                ours = place == 1 and row.kept
                axes.barh(label, ms, left=left, color=_BLUE if ours else _ORANGE, edgecolor=axes.get_facecolor(), linewidth=0.8)
                left += ms
            axes.text(left, place, f" {left:.3g} ms", va="center")
        axes.set_xlabel("ms, layer after layer; blue: faltung, orange: PyTorch")
        axes.margins(x=0.12)
    return [("layers", "The model's convolutions", draw if timed else None,
             ("layer", "what", "ms", "PyTorch ms", "ratio", "error", "PyTorch's", "kernel, or why not"),
             [(r.name, r.fused, r.ms, r.torch_ms, r.speedup, r.error, r.torch_error, r.why or r.kernel) for r in rows])]


def _doctor_parts(report):
    parts = []
    for number, device in enumerate(report.get("devices", [])):
        matrix = device["matrix"]
        found = {outcome for counts in matrix.values() for outcome in counts}
        outcomes = [o for o in _VERDICTS if o in found] + sorted(found - set(_VERDICTS))
        rows = [[family] + [counts.get(outcome, 0) for outcome in outcomes] for family, counts in matrix.items()]
        heading = f"Doctor on {device['device']}: {device['description']}, {device['driver']}"
        parts.append((f"doctor-{number}", heading, lambda axes, ink, m=matrix, o=outcomes: _draw_matrix(axes, ink, m, o),
                      ("family", *outcomes), rows))
    return parts


def _draw_matrix(axes, ink, matrix, outcomes):
    axes.grid(False)
    for y, counts in enumerate(matrix.values()):
        for x, outcome in enumerate(outcomes):
            count = counts.get(outcome, 0)
            good = outcome in ("pass", "chosen", "slower")
            colour = _BLUE if good else _GREY if outcome in ("declined", "skipped", "slow") else _ORANGE
            axes.add_patch(_rectangle(x, y, colour, 0.85 if count else 0.06))
            axes.text(x, y, count or "", ha="center", va="center", color="#ffffff" if count else ink)
    axes.set_xlim(-0.5, len(outcomes) - 0.5)
    axes.set_ylim(len(matrix) - 0.5, -0.5)
    axes.set_xticks(range(len(outcomes)), outcomes)
    axes.set_yticks(range(len(matrix)), list(matrix))


def _rectangle(x, y, colour, alpha):
    from matplotlib.patches import Rectangle
    return Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, facecolor=colour, alpha=alpha, linewidth=0)


# -------------------------------------------------------------------------------------------- the command

def _read(path):
    from ._command import _rows
    kind, read = ("CSV", lambda file: _rows(file.read())) if path.endswith(".csv") else ("JSON", json.load)
    try:
        with open(path, encoding="utf-8") as file:
            return read(file)
    except (OSError, ValueError) as error:
        raise BadFile(f"{path} cannot be read as {kind}: {error}") from None


def _read_all(paths):
    return [row for path in paths for row in _read(path)]


def main(words=None):
    parser = argparse.ArgumentParser(prog="python3 -m faltung.report", description="One page, and its pictures, of what was measured")
    parser.add_argument("folder", help="where report.html goes")
    parser.add_argument("--bench", action="append", default=[], metavar="FILE", help="what faltung bench wrote with --json or --csv; repeatable")
    parser.add_argument("--find", action="append", default=[], metavar="FILE", help="likewise of faltung find; repeatable")
    parser.add_argument("--doctor", metavar="FILE", help="the .json that faltung doctor wrote with --report")
    parser.add_argument("--title", default="faltung")
    given = parser.parse_args(words)
    try:
        print(write(given.folder, title=given.title, bench=_read_all(given.bench), find=_read_all(given.find),
                    doctor=given.doctor and _read(given.doctor)))
    except Error as error:
        print(f"faltung: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
