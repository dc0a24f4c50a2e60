"""What the goals of bench/goal_list.py are of: how each is worked out, and how it is shown. A figure is held to its goal as it is printed, and bold
below it."""
import dataclasses

from measured import workload
from table_page import mean

LAYOUTS = ("nhwc", "nchw")
NOTHING = "*not measured*"


def marked(text, misses):
    return f"**{text}**" if misses else text


def at_least(least, value):
    return marked(f"{value:.2f}", least is not None and round(value, 2) < least)


@dataclasses.dataclass(frozen=True)
class Goal:
    """A line of the table: goal() and, of one layout, cell() are two of its columns."""
    what: str
    notes: str = dataclasses.field(default="", kw_only=True)
    by = "all"


@dataclasses.dataclass(frozen=True)
class OfLists(Goal):
    section: str  # of bench/tables.py, with * for the layout
    lists: str
    picks: tuple = dataclasses.field(default=(None, None), kw_only=True)  # which of their rows, in NHWC and NCHW; else all

    @property
    def by(self):
        return f"`{self.section}`"

    def cell(self, measured, layout):
        place = LAYOUTS.index(layout)
        if not (section := measured.section(self.section, layout)):
            return ""
        rows, expected = [], 0
        for one in self.lists.split():
            names = {name for name, row in workload(one).items() if not self.picks[place] or self.picks[place](row)}
            found = [row for row in measured.rows(section, one) if row.name in names]
            if not found:
                return NOTHING
            rows, expected = rows + found, expected + len(names)
        is_one = not self.picks[place] and " " not in self.lists
        return self.figures(rows, expected, place, measured.summary(section, self.lists) if is_one else None)


@dataclasses.dataclass(frozen=True)
class Means(OfLists):
    """Geometric means of ratios, by plan and by find, each with its lowest row."""
    least: tuple = (None, None)  # in NHWC and NCHW
    lowest: float = None

    def goal(self):
        means = ", ".join("–" if least is None else str(least) for least in self.least) if any(self.least) else ""
        return "; ".join(filter(None, (means, f"rows {self.lowest}" if self.lowest else ""))) or "–"

    def figures(self, rows, expected, place, summary):
        """summary: of a whole list, whose means were not worked out of ratios that had been rounded."""
        out = []
        for way in ("plan", "find"):
            if ratios := [ratio for row in rows if (ratio := getattr(row, way)) is not None]:
                middle = getattr(summary, way)[0] if summary else mean(ratios)
                some = "" if len(ratios) == expected else f", {len(ratios)} of {expected} rows"
                out.append(f"{at_least(self.least[place], middle)} ({at_least(self.lowest, min(ratios))}){some}")
        return " / ".join(out) or NOTHING


@dataclasses.dataclass(frozen=True)
class Shares(OfLists):
    """Of the ceiling, each row's: where a copy is what bounds them, of a copy."""
    least: float

    def goal(self):
        return f"each {self.least}"

    def figures(self, rows, expected, place, summary):
        return ", ".join(at_least(self.least, row.ceiling / 100) for row in rows)


@dataclasses.dataclass(frozen=True)
class PlanOverFind(Goal):
    """Of all lists, the lowest mean and the lowest row."""
    least: float
    lowest: float

    def goal(self):
        return f"{self.least}; rows {self.lowest}"

    def cell(self, measured, layout):
        every = measured.every(layout)
        found = [(measured.summary(section, one).plan_over_find, one, section) for section, one in every]
        found = [(over, f"{one}, `{section.name}`") for over, one, section in found if over]
        if not found:
            return NOTHING
        (low, _), where = min(found, key=lambda each: each[0][0])
        (_, row), whose = min(found, key=lambda each: each[0][1])
        return f"{at_least(self.least, low)} ({where}), row {at_least(self.lowest, row)} ({whose}); {len(found)} of {len(every)} lists"


@dataclasses.dataclass(frozen=True)
class AtMost(Goal):
    """Of all rows, the highest figure, and how many are above what is allowed."""
    most: float
    unit: str
    figure: object  # of a Row and its line of the workload; nothing where there is none

    def goal(self):
        return f"at most {self.most}{self.unit}"

    def cell(self, measured, layout):
        found = [(float(f"{value:.3g}"), f"{row.name}, `{section.name}`") for section, one in measured.every(layout)
                 for row in measured.rows(section, one) if (value := self.figure(row, workload(one).get(row.name, {}))) is not None]
        if not found:
            return NOTHING
        highest, where = max(found)
        above = sum(value > self.most for value, _ in found)
        return f"{marked(f'{highest:g}{self.unit}', above)} ({where}), {above} of {len(found)} rows above"


def of_chain(row, line):
    return row.of_chain


def of_ceiling(row, line):
    """In percent, of what cannot be left out of the multiplications; nothing for an algorithm that makes do with far fewer."""
    if row.ceiling is None or row.kernel.startswith(("`winograd_", "`fft_")):
        return None
    if line.get("groups") == line.get("c") and int(line.get("r", 1)) * int(line.get("s", 1)) <= 9:
        return row.ceiling  # a copy's: of depthwise ones with so few taps that is the lower one
    needed = inside(line, "h", "r", "top", "bottom") * inside(line, "d", "t", "front", "back")
    if row.kernel.startswith("`depthwise_cpu"):
        needed *= inside(line, "w", "s", "left", "right")
    return row.ceiling * needed


def inside(line, size, taps, before, after):
    """Along a dimension, which share of all taps of all outputs meets the image, not its padding."""
    if taps not in line or line.get("kind") == "transposed":
        return 1.0
    length, count, stride, dilation = int(line[size]), int(line[taps]), int(line[f"stride_{size}"]), int(line.get(f"dilation_{size}", 1))
    starts = range(-int(line.get(f"pad_{before}", 0)), length + int(line.get(f"pad_{after}", 0)) - (count - 1) * dilation, stride)
    return sum(0 <= start + tap * dilation < length for start in starts for tap in range(count)) / (len(starts) * count)
