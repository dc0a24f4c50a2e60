"""What stands on a page that bench/tables.py wrote, by section, layout and list."""
import collections
import csv
import functools
import pathlib
import re

from table_page import WrittenPage, columns_of
from table_sections import sections_of

WORKLOADS = pathlib.Path(__file__).resolve().parent.parent / "workloads"

Row = collections.namedtuple("Row", "name plan find ceiling of_chain kernel")  # plan, find: ratios; nothing where there is no figure
Summary = collections.namedtuple("Summary", "plan find plan_over_find")  # the mean and the lowest row; nothing likewise


@functools.cache
def workload(one):
    """A list's rows by name, as its file has them."""
    return {row["name"]: row for row in csv.DictReader((WORKLOADS / f"{one}.csv").read_text().splitlines())}


def number(text):
    return float(text) if re.fullmatch(r"[\d.]+(e-?\d+)?", text) else None


def layout_of(section):
    return "nhwc" if section.title.endswith("NHWC") else "nchw"


class Measured:
    def __init__(self, text):
        self.device = re.search(r"`bench/tables\.py --device ([^\s`]+)`", text)[1]
        self.page, self.sections = WrittenPage(text), {s.name: s for s in sections_of(self.device)}

    def section(self, name, layout):
        """Of a name with * for the layout; nothing where none is of that layout."""
        found = self.sections.get(name.replace("*", layout))
        return found if found and layout_of(found) == layout else None

    def rows(self, section, one):
        lines = [columns_of(line) for line in self.page.lists.get(section.title, {}).get(one, [])]
        if not lines:
            return []
        head = lines[0]
        plan = head.index("ratio")
        find = head.index("ratio", plan + 1)
        ceiling, of_chain = head.index("% of ceiling"), head.index("of a chain's") if "of a chain's" in head else None
        return [Row(line[0], *(number(line[i]) if i is not None else None for i in (plan, find, ceiling, of_chain)), line[-1])
                for line in lines[2:]]

    def summary(self, section, one):
        found = [re.match(r"([\d.]+) \(([\d.]+)", column) for column in columns_of(self.page.summary[one, section.title])[2:5]]
        return Summary(*((float(f[1]), float(f[2])) if f else None for f in found))

    def every(self, layout):
        """Each list that was measured in this layout, and its section."""
        return [(section, one) for section in self.sections.values() if layout_of(section) == layout
                for one in section.in_order(self.page.lists.get(section.title, {}))]
