#!/usr/bin/env python3
"""Whole networks on a GPU: faltung beside PyTorch, in 16 bits, one table.

Each model, of torchvision or of those below, is exported to ONNX with random weights, normalized by a few batches so that no activation
grows without bound. faltung runs the file; PyTorch runs the module in channels_last, as it is (eager), captured (a CUDA
graph) and compiled. Errors are those of the output against PyTorch in f32, relative to its largest element.

    bench/torch_networks.py --models resnet50 --batches 1,32 --faltung build/tools/faltung --folder build/networks
"""
import argparse
import copy
import pathlib
import re
import subprocess
import sys
import time

import numpy
import torch
import torchvision

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


class UNet(torch.nn.Module):
    """Two convolutions a level, four levels, doubling by transposed convolutions."""

    def __init__(self, widths=(64, 128, 256, 512), classes=21):
        super().__init__()
        nn = torch.nn
        def twice(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                                 nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        self.down = nn.ModuleList(twice(a, b) for a, b in zip((3,) + widths, widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, 2) for a in widths[-2::-1])
        self.join = nn.ModuleList(twice(2 * a, a) for a in widths[-2::-1])
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for level in self.down:
            x = level(x)
            kept.append(x)
            if level is not self.down[-1]:
                x = torch.nn.functional.max_pool2d(x, 2)
        for up, join, other in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat((up(x), other), 1))
        return self.last(x)


class SuperResolution(torch.nn.Module):
    """Real-ESRGAN x4's generator: 23 residual blocks of three dense blocks of five convolutions each."""

    class Dense(torch.nn.Module):
        def __init__(self, width=64, growth=32):
            super().__init__()
            self.convolutions = torch.nn.ModuleList(
                torch.nn.Conv2d(width + i * growth, width if i == 4 else growth, 3, padding=1) for i in range(5))

        def forward(self, x):
            all = [x]
            for convolution in self.convolutions[:-1]:
                all.append(torch.nn.functional.leaky_relu(convolution(torch.cat(all, 1)), 0.2))
            return x + 0.2 * self.convolutions[-1](torch.cat(all, 1))

    def __init__(self, width=64, blocks=23):
        super().__init__()
        nn = torch.nn
        conv = lambda a, b: nn.Conv2d(a, b, 3, padding=1)
        self.first, self.body = conv(3, width), nn.ModuleList(
            nn.Sequential(*(self.Dense(width) for _ in range(3))) for _ in range(blocks))
        self.after, self.up = conv(width, width), nn.ModuleList(conv(width, width) for _ in range(2))
        self.before_last, self.last = conv(width, width), conv(width, 3)

    def forward(self, x):
        functional = torch.nn.functional
        x = y = self.first(x)
        for block in self.body:
            y = y + 0.2 * block(y)
        x = x + self.after(y)
        for up in self.up:
            x = functional.leaky_relu(up(functional.interpolate(x, scale_factor=2.0, mode="nearest")), 0.2)
        return self.last(functional.leaky_relu(self.before_last(x), 0.2))


class Decoder(torch.nn.Module):
    """The decoder of Stable Diffusion's autoencoders: four levels of residual blocks with group normalization, attention
    at the lowest."""

    class Block(torch.nn.Module):
        def __init__(self, a, b):
            super().__init__()
            nn = torch.nn
            self.way = nn.Sequential(nn.GroupNorm(32, a, 1e-6), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1),
                                     nn.GroupNorm(32, b, 1e-6), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
            self.short = nn.Identity() if a == b else nn.Conv2d(a, b, 1)

        def forward(self, x):
            return self.short(x) + self.way(x)

    class Attention(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = torch.nn.GroupNorm(32, width, 1e-6)
            self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))

        def forward(self, x):
            tokens = self.norm(x).flatten(2).transpose(1, 2)
            y = torch.nn.functional.scaled_dot_product_attention(
                *(part(tokens).unsqueeze(1) for part in (self.query, self.key, self.value))).squeeze(1)
            return x + self.out(y).transpose(1, 2).reshape(x.shape)

    def __init__(self, widths=(512, 512, 256, 128), latent=4):
        super().__init__()
        nn = torch.nn
        layers = [nn.Conv2d(latent, widths[0], 3, padding=1), self.Block(widths[0], widths[0]),
                  self.Attention(widths[0]), self.Block(widths[0], widths[0])]
        for i, (a, b) in enumerate(zip((widths[0],) + widths, widths)):
            layers += [self.Block(a, b), self.Block(b, b), self.Block(b, b)]
            if i < 3:
                layers += [nn.Upsample(scale_factor=2.0, mode="nearest"), nn.Conv2d(b, b, 3, padding=1)]
        layers += [nn.GroupNorm(32, widths[-1], 1e-6), nn.SiLU(), nn.Conv2d(widths[-1], 3, 3, padding=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class Attention(torch.nn.Module):
    """Heads of `depth` over tokens: of the tokens themselves, or of a context's."""

    def __init__(self, width, context, heads):
        super().__init__()
        linear = lambda a: torch.nn.Linear(a, width, bias=False)
        self.heads, self.query, self.key, self.value = heads, linear(width), linear(context), linear(context)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x, context=None):
        context = x if context is None else context
        parts = (part(y).unflatten(2, (self.heads, -1)).transpose(1, 2)
                 for part, y in ((self.query, x), (self.key, context), (self.value, context)))
        return self.out(torch.nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class Diffusion(torch.nn.Module):
    """Stable Diffusion 1.5's U-Net: of a latent image, a time's embedding and a context of 77 tokens."""

    class Block(torch.nn.Module):
        def __init__(self, a, b, time):
            super().__init__()
            nn = torch.nn
            self.before = nn.Sequential(nn.GroupNorm(32, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))
            self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, b))
            self.after = nn.Sequential(nn.GroupNorm(32, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
            self.short = nn.Identity() if a == b else nn.Conv2d(a, b, 1)

        def forward(self, x, time, context):
            return self.short(x) + self.after(self.before(x) + self.time(time)[:, :, None, None])

    class Transformer(torch.nn.Module):
        def __init__(self, width, context, heads):
            super().__init__()
            nn = torch.nn
            self.norm, self.first, self.last = nn.GroupNorm(32, width, 1e-6), nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
            self.own, self.cross = Attention(width, width, heads), Attention(width, context, heads)
            self.wide, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

        def forward(self, x, time, context):
            tokens = self.first(self.norm(x)).permute(0, 2, 3, 1).flatten(1, 2)
            tokens = tokens + self.own(self.norms[0](tokens))
            tokens = tokens + self.cross(self.norms[1](tokens), context)
            value, gate = self.wide(self.norms[2](tokens)).chunk(2, 2)
            tokens = tokens + self.narrow(value * torch.nn.functional.gelu(gate))
            return x + self.last(tokens.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2))

    class Sampling(torch.nn.Module):
        def __init__(self, width, stride):
            super().__init__()
            self.stride, self.conv = stride, torch.nn.Conv2d(width, width, 3, stride, 1)

        def forward(self, x, time, context):
            return self.conv(x if self.stride == 2 else torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))

    def __init__(self, widths=(320, 640, 1280, 1280), context=768, heads=8):
        super().__init__()
        nn, time = torch.nn, 4 * widths[0]
        block = lambda a, b: self.Block(a, b, time)
        transformer = lambda width: self.Transformer(width, context, heads)
        self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.up, kept, width = nn.ModuleList(), nn.ModuleList(), [widths[0]], widths[0]
        for i, b in enumerate(widths):  # a stage's result is kept for the way up
            for _ in range(2):
                self.down.append(nn.ModuleList([block(width, b)] + ([transformer(b)] if i < 3 else [])))
                kept.append(width := b)
            if i < 3:
                self.down.append(nn.ModuleList([self.Sampling(b, 2)]))
                kept.append(b)
        self.middle = nn.ModuleList([block(width, width), transformer(width), block(width, width)])
        for i, b in reversed(list(enumerate(widths))):
            for j in range(3):
                more = ([transformer(b)] if i < 3 else []) + ([self.Sampling(b, 1)] if i > 0 and j == 2 else [])
                self.up.append(nn.ModuleList([block(width + kept.pop(), b)] + more))
                width = b
        self.last = nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, x, time, context):
        def through(stage, x):
            for part in stage:
                x = part(x, time, context)
            return x
        time = self.time(time)
        x = self.first(x)
        kept = [x]
        for stage in self.down:
            kept.append(x := through(stage, x))
        x = through(self.middle, x)
        for stage in self.up:
            x = through(stage, torch.cat((x, kept.pop()), 1))
        return self.last(x)


OWN = {"unet": UNet, "realesrgan": SuperResolution, "vae_decoder": Decoder, "sd_unet": Diffusion}
# Height and width, and channels.
SIZES = {"efficientnet_b2": (288, 3), "unet": (256, 3), "realesrgan": (256, 3), "vae_decoder": (64, 4), "sd_unet": (64, 4)}
# Inputs beside the image x.
OTHERS = {"sd_unet": {"time": (320,), "context": (77, 768)}}


def make(name):
    torch.manual_seed(1)
    model = OWN[name]() if name in OWN else getattr(torchvision.models, name)(weights=None)
    size, channels = SIZES.get(name, (224, 3))
    model.train().cuda()
    if any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules()):
        with torch.no_grad():
            for _ in range(4):
                model(torch.randn(16, channels, size, size, device="cuda"))
    return model.eval(), {"x": (channels, size, size), **OTHERS.get(name, {})}


def draw(shapes, batch):
    return tuple(torch.randn(batch, *shape, device="cuda") for shape in shapes.values())


def export(model, shapes, file):
    """One file, and where its weights are beyond 2 GB others beside it."""
    inputs, names = draw(shapes, 2), {"input_names": list(shapes), "output_names": ["y"]}
    try:
        torch.onnx.export(model, inputs, file, opset_version=17, dynamo=False,
                          dynamic_axes={name: {0: "n"} for name in [*shapes, "y"]}, **names)
    except (RuntimeError, TypeError, ImportError):  # a PyTorch without that exporter
        torch.onnx.export(model, inputs, file, dynamo=True, external_data=False,
                          dynamic_shapes=({0: torch.export.Dim("n")},) * len(shapes), **names)


def median_ms(once, seconds=0.6):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    once()
    torch.cuda.synchronize()
    times, stop = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < stop:
        begin.record()
        for _ in range(5):
            once()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 5)
    return float(numpy.median(times))


def captured(call):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def torch_ms(model, inputs, dtype, mode):
    half = {}
    with torch.no_grad():
        m = model.to(dtype).to(memory_format=torch.channels_last)
        half_inputs = [x.to(dtype).contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.to(dtype)
                       for x in inputs]
        half["y"] = m(*half_inputs).float()
        times = {"eager": median_ms(lambda: m(*half_inputs)), "graph": median_ms(captured(lambda: m(*half_inputs)))}
        if mode != "none":
            began = time.perf_counter()
            compiled = torch.compile(m, mode=mode)
            for _ in range(3):
                compiled(*half_inputs)
            torch.cuda.synchronize()
            times["compile_s"] = time.perf_counter() - began
            times["compiled"] = median_ms(lambda: compiled(*half_inputs))
    return times, half["y"]


def run(words, log):
    begin = time.perf_counter()
    result = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    text = f"$ {' '.join(map(str, words[1:]))}   ({time.perf_counter() - begin:.1f} s)\n{result.stdout}{result.stderr}\n"
    with open(log, "a") as file:
        file.write(text)
    return result.stdout + result.stderr


def first_ms(text, pattern):
    found = re.search(pattern + r" ([0-9.]+) ms", text)
    return float(found.group(1)) if found else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet50,efficientnet_b2,mobilenet_v3_large,unet")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--dtype", default="f16", choices=DTYPES)
    parser.add_argument("--device", default="cuda:0", help="faltung's")
    parser.add_argument("--faltung", default="faltung")
    parser.add_argument("--folder", default="build/networks")
    parser.add_argument("--compile", default="reduce-overhead",
                        help="torch.compile's mode: reduce-overhead, max-autotune (minutes a model) or none")
    parser.add_argument("--find", default="", help="how long faltung may measure each convolution first, e.g. 500ms")
    parser.add_argument("--verify", action="store_true", help="every tensor of one image, in doubles on the CPU")
    args = parser.parse_args()
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    log = folder / "log.txt"
    where = ["--device", args.device, "--dtype", args.dtype] + (["--find", args.find] if args.find else [])
    print(f"{'network':24} {'ours':>8} {'graph':>8} {'steps':>8} {'eager':>8} {'graph':>8} {'compiled':>8} {'error':>9} "
          f"{'PyTorch':>9}", flush=True)
    for name in args.models.split(","):
        model, shapes = make(name)
        file = folder / f"{name}.onnx"
        export(model, shapes, file)

        def sizes(batch):
            return [word for key, shape in shapes.items() for word in ("--size", f"{key}=" + "x".join(map(str, (batch, *shape))))]
        if args.verify:
            text = run([args.faltung, "network", "verify", file, *sizes(1), *where], log)
            print("verify:", text.strip().splitlines()[-1], flush=True)
        for batch in map(int, args.batches.split(",")):
            inputs, given = draw(shapes, batch), []
            with torch.no_grad():
                y = model(*inputs)
            for key, x in zip(shapes, inputs):
                numpy.save(folder / f"{key}.npy", x.cpu().numpy())
                given += ["--input", f"{key}={folder / key}.npy"]
            text = run([args.faltung, "network", "run", file, *sizes(batch), *where, *given, "--output",
                        f"y={folder / 'y.npy'}"], log)
            try:
                ours = torch.from_numpy(numpy.load(folder / "y.npy")).cuda()
                error = ((ours - y).abs().max() / y.abs().max()).item()
                (folder / "y.npy").unlink()
            except OSError:
                print(text.strip().splitlines()[-1], flush=True)
                error = float("nan")
            bench = run([args.faltung, "network", "bench", file, *sizes(batch), *where], log)
            run([args.faltung, "network", "explain", file, *sizes(batch), *where], log)
            times, half = torch_ms(copy.deepcopy(model), inputs, DTYPES[args.dtype], args.compile)
            theirs = ((half - y).abs().max() / y.abs().max()).item()
            row = [first_ms(bench, r"faltung \S+:"), first_ms(bench, "in a graph of its own:"),
                   first_ms(bench, "launched step by step:"), times["eager"], times["graph"],
                   times.get("compiled", float("nan"))]
            print(f"{name + ' b' + str(batch):24} " + " ".join(f"{v:8.4f}" for v in row) +
                  f" {error:9.2e} {theirs:9.2e}  compiled in {times.get('compile_s', 0):.0f} s", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
