#!/usr/bin/env python3
"""examples/ocr reads what rapidocr reads with ONNX Runtime: pictures drawn here, and photographs inside packages.

    ocr_test.py OCR     (python3 with rapidocr, onnxruntime and what tests/ocr/pictures.py takes fonts of)

Texts must be equal; corners may differ by 2 pixels and scores by 0.03, since OpenCV's versions round differently. A
sample is read, all with FALTUNG_TEST_FULL; FALTUNG_TEST_SEED draws others.
"""
import importlib.util
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import pictures

HERE = pathlib.Path(__file__).resolve().parent
PEER = HERE.parent.parent / "examples" / "ocr" / "rapidocr_lines.py"
PHOTOGRAPHS = ["page.png", "text.png", "motorcycle_left.png", "coffee.png", "astronaut.png", "rocket.jpg"]  # scikit-image's


def photographs():
    found = importlib.util.find_spec("skimage")
    folder = pathlib.Path(found.origin).parent / "data" if found else None
    return [folder / name for name in PHOTOGRAPHS if folder and (folder / name).exists()]


def lines_by_picture(words):
    """Of each picture what was printed: [(score, corners, text)]."""
    output = subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for line in output.splitlines():
        if line.startswith("# "):
            found[line[2:].rpartition(":")[0]] = lines = []
        else:
            score, corners, text = line.split("\t")
            lines.append((float(score), [float(v) for p in corners.split() for v in p.split(",")], text))
    return found


def difference(ours, theirs):
    """A line that says what differs; empty if nothing does."""
    if [text for _, _, text in ours] != [text for _, _, text in theirs]:
        return f"ours {[t for _, _, t in ours]}, rapidocr's {[t for _, _, t in theirs]}"
    for (score, corners, text), (their_score, their_corners, _) in zip(ours, theirs):
        if abs(score - their_score) > 0.03:
            return f"{text!r}: score {score}, rapidocr's {their_score}"
        if max(abs(a - b) for a, b in zip(corners, their_corners)) > 2:
            return f"{text!r}: corners {corners}, rapidocr's {their_corners}"
    return ""


def main():
    seed = int(os.environ.get("FALTUNG_TEST_SEED", "1"))
    indices, photos = list(range(pictures.COUNT)), photographs()
    if not os.environ.get("FALTUNG_TEST_FULL"):
        draw = random.Random(f"{seed}")
        indices, photos = sorted(draw.sample(indices, 4)), photos[:1]
        print(f"{len(indices)} of {pictures.COUNT} pictures and {len(photos)} of {len(photographs())} photographs drawn by "
              f"FALTUNG_TEST_SEED={seed}; FALTUNG_TEST_FULL=1 reads all")
    fonts = pictures.font_files()
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, pictures.file_name(i)) for i in indices]
        for index, file in zip(indices, files):
            pictures.make(seed, index, fonts).save(file)
        files += photos
        models = pathlib.Path(importlib.util.find_spec("rapidocr").origin).parent / "models"
        ours = lines_by_picture([sys.argv[1], "--models", models, *files])
        theirs = lines_by_picture([sys.executable, PEER, *files])
    failures = 0
    for file in map(str, files):
        wrong = difference(ours[file], theirs[file])
        failures += bool(wrong)
        print(f"{pathlib.Path(file).name}: {wrong or f'{len(ours[file])} lines, equal'}")
    read = sum(map(len, ours.values()))
    if read < 2 * len(indices):
        failures += 1
        print(f"only {read} lines were read of {len(files)} pictures")
    print(f"{len(files)} pictures with {len(fonts)} fonts, {read} lines, {failures} differ")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
