"""A page of docs/performance/, written of what bench/tables.py measured."""
import csv
import datetime
import json
import math
import shlex


def mean(ratios):
    return math.exp(sum(math.log(r) for r in ratios) / len(ratios))


class Times:
    """One way's rows by list and name."""

    def __init__(self, path):
        lines = csv.DictReader(path.read_text().splitlines()) if path.exists() else []
        self.lists = {}
        for line in lines:
            if line["ms"]:
                self.lists.setdefault(line["suite"], {})[line["name"]] = line

    def rows(self, one):
        return self.lists.get(one, {})

    def summary(self, one):
        ratios = {name: float(row["ratio"]) for name, row in self.rows(one).items() if row["ratio"]}
        if not ratios:
            return ""
        lowest = min(ratios, key=ratios.get)
        return f"{mean(ratios.values()):.2f} ({ratios[lowest]:.2f} {lowest})"


SUMMARY_HEAD = ["## Summary", "", "Geometric mean of the ratios (lowest row).", "",
                "| list | | plan | find | plan over find | the peer's other way | measured |", "|" + "---|" * 7]


class Page:
    def __init__(self, folder, every):
        self.every = every
        self.sections = [s for s in every if (folder / f"{s.name}.plan.csv").exists()]
        self.times = {s.name: {way: Times(folder / f"{s.name}.{way}.csv") for way in ("plan", "find", "also")}
                      for s in self.sections}
        self.days = {s.name: datetime.date.fromtimestamp((folder / f"{s.name}.plan.csv").stat().st_mtime).isoformat()
                     for s in self.sections}
        self.about = json.loads((folder / "machine.json").read_text())

    def text(self, device, before=None):
        """The page; what an earlier page has of lists that were not measured again stays."""
        summary, lists = self.summary(), {s.title: self.rows(s) for s in self.sections}
        out = [self.head(device), "", *SUMMARY_HEAD]
        for section in self.every:
            kept = before.lists.get(section.title, {}) if before else {}
            rows = {**{one: before.summary[one, section.title] for one in kept}, **summary.get(section.title, {})}
            out += [rows[one] for one in section.in_order(rows)]
        for section in self.every:
            rows = {**(before.lists.get(section.title, {}) if before else {}), **lists.get(section.title, {})}
            if rows:
                command = shlex.join(section.bench("build", self.about["device"], ["--vs", section.peer]))
                out += ["", f"## {section.title}", "", f"`{command}`"]
            for one in section.in_order(rows):
                out += ["", f"### {one}, {section.title}", "", *rows[one]]
        return "\n".join(out)

    def clock(self, dtype):
        mhz = float(self.about.get(dtype + "_mhz") or 0)
        return f" at {mhz:.0f} MHz" if mhz else ""

    def head(self, device):
        a = self.about
        rates = ", ".join(f"{dtype} {float(a[dtype + '_gflops']) / 1000:.3g}" + self.clock(dtype)
                          for dtype in ("f32", "tf32", "f16", "bf16"))
        peers = "; ".join(value for key, value in a.items() if key.startswith("peer "))
        threads = f", {a['threads']} threads" if device == "cpu" else ""
        return f"""# {a['description'].strip()}{threads}

Made by `bench/tables.py --device {device}`, last on {a['date']}, and written by it: {a['driver']}; beside {peers}.
Ceilings as measured, TFLOP/s: {rates}; a copy {float(a['copy_gbps']):.0f} GB/s.

How things are timed: [bench.md](../bench.md). `plan` is the engine's choice without measuring, from an empty store: what a caller
gets by default, on a device that the package knows with the measurements that it ships. `find` is its choice after the candidates
were measured (empty: that was not done). A ratio is the peer's time over ours, both timed in turn in the same run: above 1 we are faster. `plan over find` is the speed of the one choice relative to the other's. `±` is the
spread of the blocks of runs, ours and the peer's, in percent of the median; `err` the worst checked element in units of its bound;
`l2` the relative error of all that were checked, ours and the peer's, against the reference in double precision; `of a chain's` the root mean square
of f32's errors over that of a chain of fp32 multiply-adds over the same terms (without an epilogue); these, the peer's time and the share of the ceiling are of `plan`'s run.
What is behind the figures, and what falls short, is in the [notes](../notes/)."""

    def ways(self, section):
        return [self.times[section.name][way] for way in ("plan", "find", "also")]

    def summary(self):
        """By title, a line for each list."""
        out = {}
        for section in self.sections:
            plan, find, also = self.ways(section)
            for one in plan.lists:
                found = find.rows(one)
                both = [relative(row, found[n]) for n, row in plan.rows(one).items() if n in found]
                other = f"{section.also}: {also.summary(one)}" if section.also and also.summary(one) else ""
                out.setdefault(section.title, {})[one] = (
                    f"| {one} | {section.title} | {plan.summary(one)} | {find.summary(one)} | "
                    f"{f'{mean(both):.2f} ({min(both):.2f})' if both else ''} | {other} | {self.days[section.name]} |")
        return out

    def rows(self, section):
        """A table for each list."""
        plan, find, _ = self.ways(section)
        tables = {}
        for one in plan.lists:
            out = tables[one] = [
                "| row | plan, ms | ± | ratio | find, ms | ± | ratio | peer, ms | ± | % of ceiling | err | l2 | peer's l2 | of a chain's | kernel: plan, find |",
                "|" + "---|" * 15]
            for name, row in plan.rows(one).items():
                found = find.rows(one).get(name)
                kernels = f"`{row['kernel']}`" + (f", `{found['kernel']}`" if found and found["kernel"] != row["kernel"] else "")
                out.append(f"| {name} | {cells(row)} | {cells(found) if found else ' | | '} | {peer_cells(row)} | "
                           f"{float(row['ceiling_pct']):.0f} | {number(row['error_over_bound'])} | {errors(row)} | {kernels} |")
        return tables


class WrittenPage:
    """A page that this wrote before: by title and list, its lines of the summary and its tables."""

    def __init__(self, text):
        self.summary, self.lists = {}, {}
        for block in text.split("\n### ")[1:]:
            heading, _, rest = block.partition("\n")
            one, title = heading.split(", ", 1)
            self.lists.setdefault(title, {})[one] = [line for line in rest.splitlines() if line.startswith("|")]
        for line in text.split("\n## ")[1].splitlines():
            columns = columns_of(line)
            if len(columns) > 2 and columns[0] in self.lists.get(columns[1], {}):
                self.summary[columns[0], columns[1]] = line


def columns_of(line):
    """Of a line of a table."""
    return [column.strip() for column in line.split("|")[1:-1]]


def relative(row, found):
    """The speed of plan's kernel over that of find's: of one run by their times; of two each against the peer in its own, where there
    is one. Two runs whose peer differed by more than a tenth are two minutes of the machine: then by their times, too."""
    if row["kernel"] == found["kernel"]:
        return 1.0
    peers = [float(one["peer_ms"]) for one in (row, found) if one["peer_ms"]]
    if len(peers) == 2 and max(peers) < 1.1 * min(peers):
        return float(row["ratio"]) / float(found["ratio"])
    return float(found["ms"]) / float(row["ms"])


def number(text):
    return f"{float(text):.3g}" if text else ""


def errors(row):
    relative_errors = [f"{float(text):.1e}" if text else "" for text in (row.get("l2_error"), row.get("peer_l2_error"))]
    return " | ".join([*relative_errors, number(row.get("rms_of_chain"))])


def spread(low, high, middle):
    return f"{50 * (float(high) - float(low)) / float(middle):.0f}"


def cells(row):
    ratio = f"{float(row['ratio']):.2f}" if row["ratio"] else row["note"][:60]
    return f"{number(row['ms'])} | {spread(row['ms_min'], row['ms_max'], row['ms'])} | {ratio}"


def peer_cells(row):
    if not row["peer_ms"]:
        return " | "
    return f"{number(row['peer_ms'])} | {spread(row['peer_ms_min'], row['peer_ms_max'], row['peer_ms'])}"
