#!/usr/bin/env python3
"""What rapidocr reads with ONNX Runtime, printed as `ocr` prints it: score, corners from the top left on, text.

    rapidocr_lines.py [--threads N] [--time RUNS] PICTURE...     (python3 with the packages rapidocr and onnxruntime)
"""
import argparse
import os
import statistics
import time

import rapidocr


class Timed:
    """A network's session that adds up the milliseconds it runs."""

    def __init__(self, session):
        self.session, self.ms = session, 0.0

    def __call__(self, *inputs):
        begin = time.perf_counter()
        result = self.session(*inputs)
        self.ms += 1e3 * (time.perf_counter() - begin)
        return result

    def __getattr__(self, name):
        return getattr(self.session, name)


def medians(engine, picture, runs):
    """Whole, detection, direction, recognition."""
    parts = engine.text_det, engine.text_cls, engine.text_rec
    for part in parts:
        part.session = Timed(part.session)
    rows = []
    for _ in range(runs):
        for part in parts:
            part.session.ms = 0.0
        begin = time.perf_counter()
        engine(picture)
        rows.append([1e3 * (time.perf_counter() - begin)] + [part.session.ms for part in parts])
    for part in parts:
        part.session = part.session.session
    return [statistics.median(column) for column in zip(*rows)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="+")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--time", type=int, default=0, metavar="RUNS", help="also the median of so many readings, in ms")
    args = parser.parse_args()
    engine = rapidocr.RapidOCR(params={"Global.log_level": "error",
                                       "EngineConfig.onnxruntime.intra_op_num_threads": args.threads})
    for path in args.pictures:
        result = engine(path)
        lines = [] if result.boxes is None else list(zip(result.scores, result.boxes, result.txts))
        print(f"# {path}: {len(lines)} lines")
        for score, box, text in lines:
            print(f"{score:.3f}", "".join(f"{x:.0f},{y:.0f} " for x, y in box), text, sep="\t")
        if args.time and lines:
            print("# {:.1f} ms: detection {:.1f}, direction {:.1f}, recognition {:.1f}".format(
                *medians(engine, path, args.time)))


if __name__ == "__main__":
    main()
