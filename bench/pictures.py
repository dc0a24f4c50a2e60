#!/usr/bin/env python3
"""Draws docs/pictures/ from the tables of docs/performance/: ratios to the peer and times, for light and dark pages. Needs
matplotlib and the package `faltung` on the path: PYTHONPATH=build/python bench/pictures.py, after `./dev wheel` or `./dev demo`.
"""
import pathlib
import re
import shutil
import tempfile

import faltung.report

ROOT = pathlib.Path(__file__).resolve().parent.parent
# File, section, lists, the peer, the picture, and what it is called.
PICTURES = [("h200.md", "f16 NHWC", ("resnet50", "lux_relu"), "cuDNN", "ratios", "h200-f16-nhwc"),
            ("h200.md", "f16 NCHW", ("resnet50", "lux_relu"), "cuDNN", "times", "h200-f16-nchw"),
            ("cpu_zen4.md", "batch 4, f32 NHWC", ("resnet50",), "oneDNN", "ratios", "cpu-f32-nhwc")]


def rows_of(text, title, peer):
    """The rows of the table under `### title`, as faltung.bench gives them."""
    section = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    if section is None:
        raise SystemExit(f"pictures.py: there is no table '{title}'")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in section[1].splitlines() if line.startswith("|")]
    head, found = lines[0], []
    places = {name: head.index(name) for name in ("row", "plan, ms", "ratio", "peer, ms")}
    for cells in lines[2:]:
        row, ms, ratio, peer_ms = (cells[places[name]] for name in ("row", "plan, ms", "ratio", "peer, ms"))
        if ms and ratio and peer_ms:
            found.append({"name": row, "ms": float(ms), "ratio": float(ratio), "peer": peer, "peer_ms": float(peer_ms), "kernel": ""})
    return found


def main():
    to = ROOT / "docs" / "pictures"
    to.mkdir(exist_ok=True)
    for file, section, lists, peer, picture, name in PICTURES:
        text = (ROOT / "docs" / "performance" / file).read_text(encoding="utf-8")
        rows = [row for one in lists for row in rows_of(text, f"{one}, {section}", peer)]
        with tempfile.TemporaryDirectory() as folder:
            faltung.report.write(folder, bench=rows)
            for scheme in ("light", "dark"):
                shutil.copy(pathlib.Path(folder) / f"{picture}-{scheme}.png", to / f"{name}-{picture}-{scheme}.png")
        print(f"{len(rows)} rows: {to.relative_to(ROOT)}/{name}-{picture}-*.png")


if __name__ == "__main__":
    main()
