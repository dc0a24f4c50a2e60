#!/usr/bin/env python3
"""Each goal of bench/goal_list.py beside what bench/tables.py measured, as a table in Markdown: bold what misses its goal.

    bench/goals.py [--device cpu] [--build build]    of what was measured here; where nothing was, of the device's page in docs/performance/
    bench/goals.py PAGE...                           of these pages
    bench/goals.py --write FILE                      into a page, between <!-- goals: Zen 4 cpu_zen4.md, Xeon cpu.md --> and <!-- goals end -->:
                                                     of pages beside it, each with its label
"""
import argparse
import pathlib
import re
import sys

from goal_kinds import LAYOUTS
from goal_list import CPU, GPU
from measured import Measured
from table_page import Page
from table_sections import sections_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKED = re.compile(r"(?P<head><!-- goals: (?P<pages>[^>]+) -->\n).*?(?P<end><!-- goals end -->)", re.S)


def table(*pages):
    """Of pages, each a label and its text; all of GPUs, or all of CPUs."""
    measured = [(label, Measured(text)) for label, text in pages]
    of_cpu = {one.device == "cpu" for _, one in measured}
    if len(of_cpu) > 1:
        raise ValueError("goals of a CPU and of a GPU are two tables")
    columns = [(f"{label} {layout.upper()}".strip(), one, layout) for label, one in measured for layout in LAYOUTS]
    goals = CPU if of_cpu == {True} else GPU
    lines = [["list", "goal NHWC, NCHW", *(title for title, _, _ in columns), "by", "notes"]]
    lines += [[goal.what, goal.goal(), *(goal.cell(one, layout) for _, one, layout in columns), goal.by, goal.notes] for goal in goals]
    if not any(goal.notes for goal in goals):
        lines = [line[:-1] for line in lines]
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rest])


def written(text, folder):
    """The page with its tables made anew."""
    def made(mark):
        pages = [page.strip().rpartition(" ") for page in mark["pages"].split(",")]
        return mark["head"] + "\n" + table(*((label, (folder / name).read_text()) for label, _, name in pages)) + "\n\n" + mark["end"]
    return MARKED.sub(made, text)


def measured_here(build, device):
    """The page of what bench/tables.py left in the build folder; nothing where it did not run."""
    folder = pathlib.Path(build) / "tables" / device.replace(":", "_")
    return Page(folder, sections_of(device)).text(device) if any(folder.glob("*.plan.csv")) else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--write", metavar="FILE", type=pathlib.Path)
    options = parser.parse_args()
    if options.write:
        text = options.write.read_text()
        if not MARKED.search(text):
            parser.error(f"{options.write} has no marks")
        options.write.write_text(written(text, options.write.parent))
        return 0
    pages = [(pathlib.Path(page).stem if len(options.pages) > 1 else "", pathlib.Path(page).read_text()) for page in options.pages]
    if not pages and (text := measured_here(options.build, options.device)):
        pages = [("", text)]
    if not pages:
        page = ROOT / "docs/performance" / ("cpu_zen4.md" if options.device == "cpu" else "h200.md")
        print(f"Nothing was measured here on {options.device}; {page.relative_to(ROOT)} has:\n")
        pages = [("", page.read_text())]
    print(table(*pages))
    return 0


if __name__ == "__main__":
    sys.exit(main())
