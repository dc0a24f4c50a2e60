#!/usr/bin/env python3
"""Trains EfficientNet with PyTorch's own convolutions and with faltung's, in one run, from the same weights on the same data:

    python3 examples/train_efficientnet.py --model b2 --batch 64 --dtype bf16 --channels-last
    torchrun --nproc-per-node 2 examples/train_efficientnet.py --batch 128         # each GPU has a part of the batch

A line a step: cpy makes the batch; build queues forward pass, loss, backward pass and the optimizer's step; realize waits for
them; CL reads the loss; run is the three together. GFLOPS counts two for each multiplication of convolutions and matrix
products, of both passes. The data are made on the spot and can be learnt: gratings, whose angle is the class, of random
frequency, phase and colour, under noise.

--with takes what is trained, in turn: torch (as it is), patch (faltung.torch.patch: where it is faster), all (every
convolution by faltung), faltung and inductor (torch.compile's backends).
"""
import argparse
import copy
import gc
import math
import os
import statistics
import time

import torch
import torch.nn.functional as F
from efficientnet import SCALES, EfficientNet

LINE = ("{:7.2f} ms cpy,  {:7.2f} ms run, {:7.2f} ms build, {:7.2f} ms realize, {:7.2f} ms CL, {:7.2f} loss, {:4d} tensors, "
        "{:.2f} GB used, {:9.2f} GFLOPS")
WAYS = ("torch", "patch", "all", "faltung", "inductor")
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with", dest="ways", default="torch,patch", metavar="WAYS", help=f"of {', '.join(WAYS)} (torch,patch)")
    parser.add_argument("--model", choices=SCALES, default="b2")
    parser.add_argument("--batch", type=int, default=8, help="of all processes together")
    parser.add_argument("--size", type=int, default=224, help="of the images")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--norm", choices=("running", "batch", "none"), default="running", help="batch norm's statistics, or none")
    parser.add_argument("--no-squeeze-excite", dest="squeeze_excite", action="store_false")
    parser.add_argument("--forward", action="store_true", help="no backward pass and no step")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="of autocast")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.ways = options.ways.split(",")
    unknown = [way for way in options.ways if way not in WAYS]
    if unknown:
        parser.error(f"--with {unknown[0]}: it is one of {', '.join(WAYS)}")
    return options


class Data:
    """Batches of gratings; the same for the same seed."""

    def __init__(self, options, batch, seed):
        self.options, self.batch = options, batch
        self.generator = torch.Generator(options.device).manual_seed(seed)
        axis = torch.linspace(-math.pi, math.pi, options.size, device=options.device)
        self.y, self.x = axis[:, None], axis[None, :]

    def uniform(self, low, high, *shape):
        return torch.empty(shape, device=self.options.device).uniform_(low, high, generator=self.generator)

    def __call__(self):
        n, o = self.batch, self.options
        labels = torch.randint(o.classes, (n,), device=o.device, generator=self.generator)
        angle = labels.view(n, 1, 1) * (math.pi / o.classes)
        wave = (self.uniform(3, 9, n, 1, 1) * (self.x * angle.cos() + self.y * angle.sin()) + self.uniform(0, 2 * math.pi, n, 1, 1)).sin()
        images = wave[:, None] * self.uniform(0.5, 1.5, n, 3, 1, 1)
        images = images + 0.3 * torch.randn(images.shape, device=o.device, generator=self.generator)
        return images.contiguous(memory_format=torch.channels_last) if o.channels_last else images, labels


class Group:
    """The processes that train together; one alone without torchrun."""

    def __init__(self, options):
        self.size, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        if self.size > 1:
            cuda = options.device.startswith("cuda")
            if cuda:
                options.device = f"cuda:{os.environ['LOCAL_RANK']}"
                torch.cuda.set_device(options.device)
            torch.distributed.init_process_group("nccl" if cuda else "gloo")
        if options.batch % self.size:
            raise SystemExit(f"train_efficientnet: a batch of {options.batch} is not to be divided by {self.size} processes")
        self.batch = options.batch // self.size

    def wrap(self, model, options):
        if self.size == 1:
            return model
        return torch.nn.parallel.DistributedDataParallel(model, [options.device] if options.device.startswith("cuda") else None)

    def say(self, line):
        if self.rank == 0:
            print(line, flush=True)


def synchronize(options):
    if options.device.startswith("cuda"):
        torch.cuda.synchronize()


def gigabytes_used(options):
    if options.device.startswith("cuda"):
        return torch.cuda.memory_allocated() / 1e9
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in live_tensors()}
    return sum(storages.values()) / 1e9


def live_tensors():
    return [o for o in gc.get_objects() if type(o) in (torch.Tensor, torch.nn.Parameter)]


def loss_of(model, images, labels, options):
    with torch.autocast(options.device.split(":")[0], DTYPES[options.dtype], enabled=options.dtype != "f32"):
        scores = model(images)
    return F.cross_entropy(scores.float(), labels), scores


def prepare(way, model, group, options, example):
    """The model as that way trains it; says what it did."""
    if way in ("patch", "all"):
        import faltung.torch as ft
        with torch.autocast(options.device.split(":")[0], DTYPES[options.dtype], enabled=options.dtype != "f32"):
            patched = ft.patch(model, example, at_least=0.0 if way == "all" else 1.0, min_time=20.0)
        kept = sum(row.kept for row in patched.rows)
        group.say(f"{way}: {kept} of {len(patched.rows)} convolutions by faltung")
    elif way in ("faltung", "inductor"):
        import faltung.torch  # noqa: F401
        model = torch.compile(model, backend=way)
    return group.wrap(model, options)


def count_operations(model, group, options):
    from torch.utils.flop_counter import FlopCounterMode
    model = copy.deepcopy(model)
    with FlopCounterMode(display=False) as counter:
        loss, _ = loss_of(model, *Data(options, group.batch, 0)(), options)
        if not options.forward:
            loss.backward()
    return counter.get_total_flops() * group.size


def train(way, initial, group, options, operations):
    """Prints the lines; returns the median milliseconds of a step, and of every step the loss and the share that was right."""
    data = Data(options, group.batch, options.seed + group.rank)
    model = prepare(way, copy.deepcopy(initial), group, options, data()[0])
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9)
    data = Data(options, group.batch, options.seed + group.rank)
    torch.manual_seed(options.seed)
    runs, losses, right = [], [], []
    for step in range(options.steps):
        begin = time.perf_counter()
        images, labels = data()
        synchronize(options)
        copied = time.perf_counter()
        with torch.set_grad_enabled(not options.forward):
            loss, scores = loss_of(model, images, labels, options)
        if not options.forward:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        built = time.perf_counter()
        synchronize(options)
        realized = time.perf_counter()
        losses.append(loss.item())
        end = time.perf_counter()
        runs.append(1e3 * (end - copied))
        right.append((scores.argmax(1) == labels).float().mean().item())
        group.say(LINE.format(1e3 * (copied - begin), runs[-1], 1e3 * (built - copied), 1e3 * (realized - built), 1e3 * (end - realized),
                              losses[-1], len(live_tensors()), gigabytes_used(options), operations / 1e6 / runs[-1]))
    return statistics.median(runs[1:] or runs), losses, right


def ends(values):
    """The means of the first and of the last quarter."""
    quarter = max(1, len(values) // 4)
    return statistics.mean(values[:quarter]), statistics.mean(values[-quarter:])


def main():
    options = parse()
    group = Group(options)
    torch.manual_seed(options.seed)
    initial = EfficientNet(options.model, options.classes, options.norm, options.squeeze_excite).to(options.device)
    if options.channels_last:
        initial = initial.to(memory_format=torch.channels_last)
    operations = count_operations(initial, group, options)
    group.say(f"EfficientNet-{options.model.upper()}, batch {options.batch}, {options.size} x {options.size}, {options.classes} classes, "
              f"{options.dtype} on {options.device}, {group.size} process{'es' if group.size > 1 else ''}; {operations / 1e9:.2f} GFLOP a step")
    results = {}
    for way in options.ways:
        group.say(f"with {way}:")
        results[way] = train(way, initial, group, options, operations)
    group.say("")
    first = results[options.ways[0]][0]
    for way, (ms, losses, right) in results.items():
        (loss, last_loss), (share, last_share) = ends(losses), ends(right)
        group.say(f"{way:10} {ms:9.2f} ms a step (median), {first / ms:.2f} times as fast as {options.ways[0]}; from the first to the last "
                  f"quarter of the steps: loss {loss:.3f} -> {last_loss:.3f}, right {100 * share:.0f} -> {100 * last_share:.0f} %")
    if group.size > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
