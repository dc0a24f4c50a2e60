#!/usr/bin/env python3
"""A laboratory's figures: the best of many kernels of implicit_gemm_sm90 on a GPU, each goal beside what was measured now.

What a caller gets is in docs/performance/, made by bench/tables.py; these are behind docs/notes/h200.md.

    bench/gpu_tables.py [--build build] [--device cuda:0] [--quick] [SECTION...]

A section is one of f16, f32, tf32, relu, pool, or all of them. cuDNN, through PyTorch, runs in turn with us where there
is a python3 with PyTorch; elsewhere ratios and goals stay empty. --quick takes two kernels of two problems a list, one
round each: it shows that everything runs, not how fast. CSV of every kernel timed goes to BUILD/gpu_tables/.
"""
import argparse
import csv
import io
import math
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
F16_LISTS = "resnet50 sdxl_unet sdxl_vae lux_relu cs149_pool misa_top".split()
F32_LISTS = "lux_relu cs149_pool".split()


def mean(ratios):
    return math.exp(sum(math.log(r) for r in ratios) / len(ratios)) if ratios else 0.0


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


class Row:
    """One problem: our fastest kernel of those that were timed, the cost model's first one, and the peers."""

    def __init__(self, lines):
        self.best = min(lines, key=lambda line: float(line["ms"]))
        self.name, self.kernel = self.best["name"], self.best["kernel"].split("/")[1]
        self.ms, self.predicted = float(self.best["ms"]), float(self.best["predicted_ms"])
        self.chosen, self.first = lines[0], float(lines[0]["ms"])
        self.count = int(self.best["count"])
        self.peers = {key[:-3]: float(value) for key, value in self.best.items()
                      if key.startswith("torch") and key.endswith("_ms") and value}

    def ratio(self, *names):
        """To the fastest of the named peers; 0 where none ran."""
        ms = [self.peers[n] for n in names or self.peers if n in self.peers]
        return min(ms) / self.ms if ms else 0.0


class Tables:
    kernels = "implicit_gemm_sm90/*"

    def __init__(self, options):
        self.options, self.goals, self.number = options, [], 0
        self.peers = options.torch
        self.folder = pathlib.Path(options.build) / "gpu_tables"
        self.folder.mkdir(exist_ok=True, parents=True)

    def sweep(self, title, first, peers, *arguments):
        """Rows of what faltung-sweep times; a failure ends the script."""
        quick = ["--rows", "2"] if self.options.quick else []
        command = [f"{self.options.build}/tools/faltung-sweep", "--device", self.options.device, "--kernel",
                   self.kernels, "--first", str(2 if self.options.quick else first), "--rounds",
                   "1" if self.options.quick else "3", *quick, *arguments]
        for peer in peers if self.peers else []:
            command += ["--vs", peer]
        env = dict(os.environ, FALTUNG_PEER_PATH=f"{self.options.build}/bench/peers")
        output = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
        self.number += 1
        (self.folder / f"{self.number:02}_{title.replace(' ', '_').replace(',', '')}.csv").write_text(output)
        rows, remarks = {}, [line for line in output.splitlines() if line.startswith("#")]
        lines = (line for line in output.splitlines() if not line.startswith("#"))
        for line in csv.DictReader(io.StringIO("\n".join(lines))):
            rows.setdefault(line["name"], []).append(line)
        for remark in remarks:
            # What a peer declines that serves some rows alone is seen in the table.
            if "geometric mean" not in remark and "cudnn_convolution_relu" not in remark:
                print(remark)
        return [Row(lines) for lines in rows.values()]

    def table(self, title, rows):
        print(f"\n### {title}\n")
        names = list(dict.fromkeys(name for row in rows for name in row.peers))
        print("| row | ours, ms | " + "".join(f"{n}, ms | ratio | " for n in names) + "predicted, ms | kernel |")
        print("|" + "---|" * (4 + 2 * len(names)))
        for row in rows:
            peers = "".join(f"{row.peers[n]:.4f} | {row.peers[n] / row.ms:.2f} | " if n in row.peers else " | | "
                            for n in names)
            print(f"| {row.name} | {row.ms:.4f} | {peers}{row.predicted:.4f} | `{row.kernel}` |")
        first = mean([row.first / row.ms for row in rows])
        print(f"\nThe cost model's first choice: {100 * (first - 1):.1f} % from the fastest timed. ", end="")
        if ratios := [row.ratio() for row in rows if row.peers]:
            print(f"Ratio: geometric mean {mean(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}.", end="")
        print(flush=True)

    def goal(self, what, measured, goal, unit=""):
        """measured and goal: at least so much, or with unit '%' at most so much more."""
        self.goals.append((what, measured, goal, unit))

    def lists(self, what, names, first, goal, lux_goal, *arguments):
        """All rows of the lists and their geometric mean; the rows by list."""
        by_list = {}
        for name in names:
            title = f"{name}, {what}"
            by_list[name] = self.sweep(title, first, ["torch"], "--suite", f"workloads/{name}.csv", *arguments)
            self.table(title, by_list[name])
        if self.peers:
            ratios = [row.ratio() for rows in by_list.values() for row in rows]
            self.goal(f"{what}, {len(ratios)} rows", mean(ratios), goal)
            if lux_goal:
                self.goal(f"{what}, lux_relu", mean([row.ratio() for row in by_list["lux_relu"]]), lux_goal)
            if what == "f16 NHWC":
                self.goal(f"{what}, lowest row", min(ratios), 0.9)
        return by_list

    def f16(self):
        unet = {}
        for layout, goal, lux in (("NHWC", 1.1, 1.5), ("NCHW", 1.8, 3.2)):
            lists = self.lists(f"f16 {layout}", F16_LISTS, 6, goal, lux, "--dtype", "f16", "--layout", layout.lower())
            unet[layout] = lists["sdxl_unet"]
        if not all("torch" in row.peers for rows in unet.values() for row in rows):
            return
        ours = {k: sum(row.ms * row.count for row in rows) for k, rows in unet.items()}
        peer = {k: sum(row.peers["torch"] * row.count for row in rows) for k, rows in unet.items()}
        print("\n### SDXL UNet, f16, weighted by count\n\n| layout | ours, ms | cuDNN, ms |\n|---|---|---|")
        for layout in unet:
            print(f"| {layout} | {ours[layout]:.3f} | {peer[layout]:.3f} |")
        for layout in unet:
            self.goal(f"SDXL UNet by count, {layout}, to cuDNN's better layout", min(peer.values()) / ours[layout], 1.1)

    def in_f32(self, what, math_name, goals):
        for layout, goal in goals:
            self.lists(f"{what} {layout}", F32_LISTS, 10 if layout == "NCHW" else 6, goal, None, "--dtype", "f32",
                       "--math", math_name, "--layout", layout.lower())

    def f32(self):
        self.in_f32("f32", "f32", (("NHWC", 2.8), ("NCHW", 2.8)))

    def tf32(self):
        self.in_f32("tf32", "tf32", (("NHWC", 1.3), ("NCHW", 2.2)))

    def relu(self):
        """conv + bias + ReLU, beside the convolution alone: of each problem one after the other."""
        for layout in ("nhwc", "nchw"):
            problems = [f"n128c64h{size}w{size}k64r3s3{pad}:f16:{layout}{epilogue}" for size in (32, 64, 128, 256)
                        for pad in ("", ":pad1") for epilogue in ("", ":bias:relu")]
            if self.options.quick:
                problems = problems[:2]
            title = f"conv + bias + ReLU, f16 {layout.upper()}"
            rows = self.sweep(title, 6, ["torch", "torch-cudnn_relu"], *problems)
            self.table(title, rows)
            alone, fused = rows[0::2], rows[1::2]
            over = [f.ms / a.ms for a, f in zip(alone, fused)]
            self.goal(f"{title}: slower than our convolution alone by", 100 * (mean(over) - 1), 3, "%")
            if self.peers:
                self.goal(f"{title}: PyTorch eager", mean([row.ratio("torch") for row in fused]), 3.5)
                self.goal(f"{title}: cudnn_convolution_relu", mean([row.ratio("torch-cudnn_relu") for row in fused]), 0)

    def pool(self):
        """conv + bias + pool on cs149's 224 x 224, beside the convolution alone; and ResNet's stem."""
        for layout in ("nhwc", "nchw"):
            conv = f"n1c256h224w224k256r3s3:f16:{layout}"
            problems = [conv, conv + ":bias:maxpool2", conv + ":bias:avgpool2", conv + ":bias:maxpool3s2p1",
                        f"n64c64h256w256k64r3s3:pad1:f16:{layout}:bias:relu:maxpool3s2p1",
                        f"n32c3h224w224k64r7s7:st2:pad3:f16:{layout}:bias:relu:maxpool3s2p1"]
            title = f"conv + bias + pool, f16 {layout.upper()}"
            rows = self.sweep(title, 6, ["torch", "torch-compiled"], *problems[:2 if self.options.quick else None])
            self.table(title, rows)
            alone, fused = rows[0], rows[1]
            self.goal(f"{title} 2x2: slower than our convolution alone by", 100 * (fused.ms / alone.ms - 1), 0, "%")
            if self.peers:
                self.goal(f"{title} 2x2: the better of eager and compiled", fused.ratio(), 2.0)

    def summary(self):
        print("\n### Goals\n\n| what | measured | goal | |\n|---|---|---|---|")
        for what, measured, goal, unit in self.goals:
            met = measured <= goal if unit == "%" else measured >= goal
            wanted = f"at most {goal} %" if unit else str(goal) if goal else ""
            print(f"| {what} | {measured:.2f}{' %' if unit else ''} | {wanted} | "
                  f"{('met' if met else 'short') if wanted else ''} |")


def run(description, tables, sections, opencl=False):
    """The command line of a script that prints tables: sections are methods of `tables`, in their order."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--device", default="cuda:0")
    if opencl:
        parser.add_argument("--opencl", help="left out unless given")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("section", nargs="*", help=", ".join(sections))
    options = parser.parse_args()
    for section in options.section:
        if section not in sections:
            parser.error(f"no section '{section}'; there are {', '.join(sections)}")
    options.build = str(pathlib.Path(options.build).resolve())
    options.torch = has_torch()
    if not options.torch:
        print("no PyTorch here: our times alone")
    made = tables(options)
    for section in options.section or sections:
        if section != "opencl" or options.opencl:
            getattr(made, section)()
    made.summary()


if __name__ == "__main__":
    run(__doc__, Tables, ("f16", "f32", "tf32", "relu", "pool"))
