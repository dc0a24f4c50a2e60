#!/usr/bin/env python3
"""README's table "How fast" as a picture: bench/picture.py [README.md] >docs/ratios.svg"""
import math
import re
import sys

LEFT, UNIT, ROW, FIRST = 400, 130, 22, 46  # pixels: the labels, a doubling, a row, where rows begin
LEAST, MOST = 0.5, 8


def rows(text):
    table = re.search(r"^\| what \| peer \|.*?\n((?:\|.*\n)+)", text, re.M)[1].split("\n")[1:]
    above = ""
    for line in filter(None, table):
        what, peer, nhwc, nchw = (cell.strip() for cell in line.strip("|").split("|"))
        peer = peer or above
        above = peer
        yield what, peer, [[float(r) for r in re.findall(r"[\d.]+", cell)] for cell in (nhwc, nchw)]


def place(ratio):
    return LEFT + UNIT * (math.log2(min(max(ratio, LEAST), MOST)) - math.log2(LEAST))


def picture(text):
    body, y = [], FIRST
    for what, _, ratios in rows(text):
        body.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{what.replace("&", "&amp;")}</text>')
        for values, colour in zip(ratios, ("#1f6f8b", "#e07a1f")):
            body += [f'<circle cx="{place(r):.1f}" cy="{y}" r="5" fill="{colour}"/>' for r in values]
        y += ROW
    width, height = place(MOST) + 20, y + 10
    grid = [f'<line x1="{place(r)}" x2="{place(r)}" y1="30" y2="{y - 8}" stroke="{"#444" if r == 1 else "#ccc"}"/>'
            f'<text x="{place(r)}" y="22" text-anchor="middle">{r:g}</text>' for r in (0.5, 1, 2, 4, 8)]
    legend = (f'<circle cx="14" cy="18" r="5" fill="#1f6f8b"/><text x="24" y="22">NHWC</text>'
              f'<circle cx="84" cy="18" r="5" fill="#e07a1f"/><text x="94" y="22">NCHW</text>'
              f'<text x="{LEFT - 12}" y="22" text-anchor="end">peer\'s time over ours</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(grid + [legend] + body) + "\n</svg>\n")


if __name__ == "__main__":
    sys.stdout.write(picture(open(sys.argv[1] if len(sys.argv) > 1 else "README.md", encoding="utf-8").read()))
