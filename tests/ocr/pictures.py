#!/usr/bin/env python3
"""Pictures with text, the same for the same seed: fonts, sizes, colours, rotations, perspective, blur and noise.

    pictures.py FOLDER [--seed N] [--only 3,7]
"""
import argparse
import importlib.util
import pathlib
import random

import numpy
from PIL import Image, ImageDraw, ImageFilter, ImageFont

COUNT = 20
FONT_PACKAGES = ["font_source_serif_pro", "font_caladea", "font_amatic_sc", "font_fredoka_one"]
CJK_PACKAGE = "cvttf_NotoSansCJK_DemiLight"
WORDS = """convolution engine harbour Zürich invoice total 2026 amount due parcel number street garden Monday October
platform departure 14:35 arrival window bakery fresh bread coffee milk sugar library opening hours closed Sunday please
mind the gap keep right no entry exit towards station central park museum tickets €12.50 adults children under 6 free
kernel schedule memory bound latency tensor layout Winograd (3×3) stride=2 x86-64 v0.1.0 error@bound 99.7% A4 Nr. 17""".split()
CHINESE = ["卷积神经网络", "今天天气很好", "北京市海淀区中关村", "营业时间 9:00-18:00", "请勿吸烟", "电话 010-62345678", "高性能计算"]


def font_files():
    files = []
    for name in FONT_PACKAGES + [CJK_PACKAGE]:
        found = importlib.util.find_spec(name)
        if found is not None:
            folder = pathlib.Path(found.origin).parent
            files += sorted(p for p in folder.rglob("*") if p.suffix in (".ttf", ".otf"))
    return files


def load(file, size):
    return ImageFont.load_default(size) if file is None else ImageFont.truetype(str(file), size)


def lines_of(draw, chinese):
    if chinese:
        return draw.sample(CHINESE, draw.randint(2, 4))
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 5))) for _ in range(draw.randint(2, 6))]


def text_on_page(draw, fonts):
    """Lines of text, each of its own font, on a page of one colour."""
    cjk = [f for f in fonts if CJK_PACKAGE in str(f)]
    latin = [None] + [f for f in fonts if f not in cjk]
    chinese = bool(cjk) and draw.random() < 0.25
    dark = [draw.randint(0, 90) for _ in range(3)]
    bright = [draw.randint(170, 255) for _ in range(3)]
    ink, paper = (bright, dark) if draw.random() < 0.3 else (dark, bright)
    lines = []
    for text in lines_of(draw, chinese):
        font = load(draw.choice(cjk if chinese else latin), draw.randint(18, 52))
        lines.append((text, font, font.getbbox(text)))
    margin = draw.randint(15, 60)
    width = max(box[2] for _, _, box in lines) + 2 * margin
    height = sum(int(1.4 * box[3]) for _, _, box in lines) + 2 * margin
    page = Image.new("RGB", (width, height), tuple(paper))
    pen, y = ImageDraw.Draw(page), margin
    for text, font, box in lines:
        pen.text((margin, y), text, tuple(ink), font=font)
        y += int(1.4 * box[3])
    return page, tuple(paper)


def turned(draw, page, paper):
    way = draw.choice(["straight", "straight", "tilted", "tilted", "skewed", "head down", "sideways"])
    if way == "tilted":
        return page.rotate(draw.uniform(-12, 12), Image.BICUBIC, expand=True, fillcolor=paper)
    if way == "head down":
        return page.rotate(180)
    if way == "sideways":
        return page.rotate(90, expand=True)
    if way == "skewed":
        w, h = page.size
        corners = [(0, 0), (0, h), (w, h), (w, 0)]
        moved = [x + draw.uniform(-0.06, 0.06) * s for corner in corners for x, s in zip(corner, (w, h))]
        return page.transform(page.size, Image.QUAD, moved, Image.BICUBIC, fillcolor=paper)
    return page


def make(seed, index, fonts):
    draw = random.Random(f"{seed}/{index}")
    page = turned(draw, *text_on_page(draw, fonts))
    if draw.random() < 0.3:
        page = page.filter(ImageFilter.GaussianBlur(draw.uniform(0.3, 1.2)))
    sigma = draw.choice([0, 0, 5, 12, 25])
    noise = numpy.random.default_rng([seed, index]).normal(0, sigma, (page.height, page.width, 3)) if sigma else 0
    return Image.fromarray((numpy.asarray(page, float) + noise).clip(0, 255).astype(numpy.uint8))


def file_name(index):
    return f"drawn_{index:02}.{'jpg' if index % 4 == 3 else 'png'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="indices from 0 on")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    fonts = font_files()
    for index in map(int, args.only.split(",")) if args.only else range(COUNT):
        make(args.seed, index, fonts).save(args.folder / file_name(index))


if __name__ == "__main__":
    main()
