#!/usr/bin/env python3
"""Random networks, by faltung and by ONNX Runtime with its optimizations off: the same within f32's roundings.

    FALTUNG_RANDOM_NETWORKS=FOLDER build/tests/computing_tests --gtest_filter=NetworkRandom.Files
    build/venv-networks/bin/python tests/random_networks.py build FOLDER [--device ID]

A file's name ends in the sizes of its input x. Where they are further apart, as behind a normalization of numbers that are nearly the
same, a run in double precision says who is right: faltung is if it is no further from that than a few times ONNX Runtime is.
`./dev test-full` runs both.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
import onnxruntime

BOUND = 4e-4  # of an output's largest element: twice what tests/network_random_test.cpp grants one of the two beside doubles
MAGNIFIED = 4  # times ONNX Runtime's own distance from doubles


def by_onnxruntime(file, x):
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x})))


def by_faltung(command, file, names, folder):
    """Of the input in the folder."""
    words = [*command("run"), file, "--input", f"x={folder}/x.npy"]
    for i, name in enumerate(names):
        words += ["--output", f"{name}={folder}/{i}.npy"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return [numpy.load(f"{folder}/{i}.npy") for i in range(len(names))]


def from_doubles(command, build, file, name, folder):
    """How far faltung's output and ONNX Runtime's are from it in double precision."""
    env = dict(os.environ, PATH=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", FALTUNG_ONNXRUNTIME="off",
               FALTUNG_PEER_PATH=str(build.resolve() / "bench" / "peers"))
    words = [*command("verify"), file, "--input", f"x={folder}/x.npy", "--vs", "onnxruntime"]
    text = subprocess.run(words, env=env, text=True, stdout=subprocess.PIPE).stdout.partition("\noutputs, ")[2]
    errors = {by: float(far) for far, by in re.findall(rf"(\S+) +\S+  {re.escape(name)} +(faltung|ONNX Runtime) ", text)}
    return errors.get("faltung", numpy.inf), errors.get("ONNX Runtime", 0)


def error(expected, actual):
    """Of the worst element, relative to the largest; infinite where they are not even of one shape or not finite."""
    if expected.shape != actual.shape or not numpy.isfinite(actual).all():
        return numpy.inf
    return float(numpy.abs(expected - actual).max() / max(1e-3, numpy.abs(expected).max()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    worst, magnified, wrong = 0, 0, 0

    def command(what):
        return [args.build / "tools" / "faltung", "network", what, "--device", args.device]

    files = sorted(args.folder.glob("*.onnx"))
    for file in files:
        sizes = [int(size) for size in file.stem.split("_")[1].split("x")]
        x = numpy.random.default_rng(int(file.stem.split("_")[0])).standard_normal(sizes, dtype=numpy.float32)
        expected = by_onnxruntime(file, x)
        with tempfile.TemporaryDirectory() as folder:
            numpy.save(f"{folder}/x.npy", x)
            for (name, right), ours in zip(expected.items(), by_faltung(command, file, expected, folder)):
                far = error(right, ours)
                if far <= BOUND:
                    worst = max(worst, far)
                    continue
                mine, theirs = from_doubles(command, args.build, file, name, folder)
                magnified += 1
                is_wrong = not (numpy.isfinite(far) and mine <= MAGNIFIED * theirs)
                wrong += is_wrong
                print(f"{'WRONG' if is_wrong else 'magnified'}   {file}, output {name}: {far:.1e} of its largest element from ONNX Runtime's; "
                      f"from doubles faltung's {mine:.1e}, ONNX Runtime's {theirs:.1e}")
    print(f"{len(files)} random networks beside ONNX Runtime {onnxruntime.__version__} without optimizations: worst error {worst:.1e} but for "
          f"{magnified} outputs, {wrong} of them wrong")
    return wrong > 0 or not files


if __name__ == "__main__":
    sys.exit(main())
