#!/usr/bin/env python3
"""A laboratory's figures: the portable kernels on a CUDA device, each goal beside what was measured now.

They are behind docs/notes/h200.md.

    bench/portable_tables.py [--build build] [--device cuda:0] [--opencl opencl:0] [--quick] [SECTION...]

A section is one of f32, winograd, depthwise, mma, opencl, or all of them. cuDNN and PyTorch run in turn with us where
there is a python3 with PyTorch; elsewhere ratios and goals stay empty. Ratios are of the cost model's own choice. The
last section times the same kernels on --opencl, which is to be the same GPU by its OpenCL driver, and needs no PyTorch.
--quick takes two kernels of two problems a list, one round each. CSV goes to BUILD/gpu_tables/.
"""
import csv
import io
import subprocess

from gpu_tables import F32_LISTS, ROOT, Tables, mean, run

LARGE = "n32c192h112w112k192r3s3:pad1:g192"
LARGE_ELEMENTS = 2 * 32 * 192 * 112 * 112  # of input and output


class PortableTables(Tables):
    def chosen(self, title, kernels, *arguments):
        """Rows of the model's first kernels, of which each row has the chosen one as its own."""
        self.kernels = kernels
        rows = self.sweep(title, 3, ["torch"], *arguments)
        for row in rows:
            row.fastest, row.ms = row.ms, row.first
            row.kernel, row.predicted = row.chosen["kernel"].split("/")[1], float(row.chosen["predicted_ms"])
        return rows

    def show(self, title, rows):
        print(f"\n### {title}\n")
        print("| row | ours, ms | the peer, ms | ratio | predicted, ms | the fastest timed, ms | kernel |")
        print("|---|---|---|---|---|---|---|")
        for row in rows:
            peer = f"{row.peers['torch']:.4f} | {row.ratio():.2f}" if row.peers else " | "
            print(f"| {row.name} | {row.ms:.4f} | {peer} | {row.predicted:.4f} | {row.fastest:.4f} | `{row.kernel}` |")
        regret = mean([row.ms / row.fastest for row in rows]) - 1
        print(f"\nThe model's choice: {100 * regret:.1f} % from the fastest timed.", flush=True)

    def in_f32(self, what, kernels, goal):
        rows = []
        for name in F32_LISTS:
            rows += self.chosen(f"{what}, {name}", kernels, "--suite", f"workloads/{name}.csv", "--layout", "nchw")
        self.show(f"{what}, f32 NCHW", rows)
        if self.peers:
            self.goal(f"{what}, f32 NCHW, to cuDNN strict fp32", mean([row.ratio() for row in rows]), goal)

    def f32(self):
        self.in_f32("implicit GEMM", "implicit_gemm_gpu/*", 1.0)

    def winograd(self):
        self.in_f32("Winograd", "winograd_gpu/*", 1.5)

    def depthwise(self):
        lines = (ROOT / "workloads" / "efficientnet_b2.csv").read_text().splitlines()
        groups = lines[0].split(",").index("groups")
        suite = self.folder / "depthwise.csv"
        suite.write_text("\n".join([lines[0]] + [x for x in lines[1:] if int(x.split(",")[groups]) > 1]) + "\n")
        copy = self.copy_gbps()
        for dtype, size in (("f32", 4), ("f16", 2)):
            layouts = {}
            for layout in ("nhwc", "nchw"):
                title = f"depthwise, {dtype} {layout.upper()}"
                layouts[layout] = self.chosen(title, "depthwise_gpu/*tt*", "--suite", str(suite), "--dtype", dtype,
                                              "--layout", layout)
                self.show(title, layouts[layout])
            ratios = [min(a.peers["torch"], b.peers["torch"]) / min(a.ms, b.ms)
                      for a, b in zip(layouts["nhwc"], layouts["nchw"]) if a.peers and b.peers]
            if ratios:
                self.goal(f"depthwise, {dtype}, the faster layout of each", mean(ratios), 1.5)
            large = self.chosen(f"depthwise, a large layer, {dtype}", "depthwise_gpu/*tt*",
                                f"fwd:{LARGE}:{dtype}:nhwc")[0]
            gbps = LARGE_ELEMENTS * size / large.ms * 1e-6
            self.show(f"{LARGE} {dtype} NHWC: {gbps:.0f} GB/s, a copy {copy:.0f}", [large])
            if copy > 0:
                self.goal(f"depthwise, {dtype}, {LARGE}: of a copy's bandwidth", gbps / copy, 0.6)

    def mma(self):
        rows = self.chosen("mma.sync, resnet50", "implicit_gemm_mma_gpu/*", "--suite", "workloads/resnet50.csv",
                           "--dtype", "f16", "--layout", "nhwc")
        self.show("resnet50 by mma.sync, f16 NHWC", rows)
        if self.peers:
            self.goal("resnet50 by mma.sync, f16 NHWC, to cuDNN", mean([row.ratio() for row in rows]), 0.6)

    def command(self, *arguments):
        return subprocess.run([f"{self.options.build}/tools/faltung", *arguments], cwd=ROOT, stdout=subprocess.PIPE,
                              text=True, check=False).stdout

    def copy_gbps(self):
        for line in csv.DictReader(io.StringIO(self.command("devices", "--csv", "-"))):
            if self.options.device in line.values():
                return float(line.get("copy_gbps") or 0)
        return 0.0

    def opencl(self):
        """Both by `faltung bench`, which OpenCL can be timed with: one run after the other, no peer."""
        for what, kernels in (("Winograd", "winograd_gpu/*"), ("implicit GEMM", "implicit_gemm_gpu/*")):
            times = {}
            for device in (self.options.device, self.options.opencl):
                suites = [x for name in F32_LISTS for x in ("--suite", f"workloads/{name}.csv")]
                output = self.command("bench", "--device", device, "--kernel", kernels, "--layout", "nchw",
                                      "--no-check", "--repeat", "5", "--min-time", "20ms" if self.options.quick else "60ms", *suites,
                                      "--csv", "-")
                for line in csv.DictReader(io.StringIO(output)):
                    if line["ms"]:
                        times.setdefault(line["name"], {})[device] = (float(line["ms"]), line["kernel"].split("/")[1])
            both = {name: t for name, t in times.items() if len(t) == 2}
            print(f"\n### {what}, f32 NCHW, on {self.options.device} and {self.options.opencl}\n")
            print("| row | CUDA, ms | OpenCL, ms | of CUDA's speed | kernel |\n|---|---|---|---|---|")
            for name, t in both.items():
                (cuda, _), (opencl, kernel) = t[self.options.device], t[self.options.opencl]
                print(f"| {name} | {cuda:.4f} | {opencl:.4f} | {cuda / opencl:.2f} | `{kernel}` |")
            if both:
                self.goal(f"{what} through OpenCL: of its speed through CUDA", mean(
                    [t[self.options.device][0] / t[self.options.opencl][0] for t in both.values()]), 0.8)


if __name__ == "__main__":
    run(__doc__, PortableTables, ("f32", "winograd", "depthwise", "mma", "opencl"), opencl=True)
