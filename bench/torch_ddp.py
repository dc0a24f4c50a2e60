#!/usr/bin/env python3
"""What a second GPU brings: ResNet-50 in training, patched, by DistributedDataParallel.

    bench/torch_ddp.py                                   one GPU
    torchrun --nproc-per-node 2 bench/torch_ddp.py       two: images a second, and the gradients beside one GPU's on the joint batch

The bound on the gradients: twice the l2 distance, parameter by parameter, between PyTorch's own gradients in bf16 and in f32 on the joint
batch. Batch norm is in evaluation mode for that comparison, since its statistics are each GPU's own."""
import argparse
import os
import sys
import time

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import faltung.torch as ft
from torch_models import MODELS


def gradients(model, x, dtype):
    model.zero_grad()
    with torch.autocast("cuda", dtype, enabled=dtype is not torch.float32):
        y = model(x)
    y.float().square().mean().backward()
    return [p.grad.detach().double().clone() for p in model.parameters()]


def distances(these, those):
    return [((a - b).norm() / b.norm().clamp_min(1e-30)).item() for a, b in zip(these, those)]


def ms_a_step(step, steps=15, blocks=5):
    """The median of blocks, as many on every GPU: they wait for each other."""
    times = []
    for block in range(blocks + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3 / steps)
    return sorted(times[1:])[blocks // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", choices=MODELS)
    parser.add_argument("--batch", type=int, default=64, help="of each GPU")
    options = parser.parse_args()
    rank, world = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.cuda.set_device(rank)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    if world > 1:
        distributed.init_process_group("nccl")
    torch.manual_seed(1)
    make, _, size = MODELS[options.model]
    model = make().cuda().to(memory_format=torch.channels_last)
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.momentum = 1.0
    generator = torch.Generator("cuda").manual_seed(2)
    joint = torch.randn(world * options.batch, 3, size, size, device="cuda", generator=generator).to(memory_format=torch.channels_last)
    x = joint[rank * options.batch:(rank + 1) * options.batch]
    with torch.no_grad():
        model.train()(joint[:options.batch])
    model.eval()
    exact, rounded = gradients(model, joint, torch.float32), gradients(model, joint, torch.bfloat16)
    with torch.autocast("cuda", torch.bfloat16):
        patched = ft.patch(model.train(), x, min_time=6.0)
    whole = DistributedDataParallel(model, device_ids=[rank]) if world > 1 else model
    ours, bound = distances(gradients(whole.eval(), x, torch.bfloat16), exact), distances(rounded, exact)
    worst = max(a / (2 * b) for a, b in zip(ours, bound))
    whole.train()

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            y = whole(x)
        y.float().square().mean().backward()
        whole.zero_grad()
    ms = ms_a_step(step)
    if rank == 0:
        print(f"{options.model} on {world} GPUs, batch {options.batch} each: {ms:.2f} ms a step, {1e3 * world * options.batch / ms:.0f} "
              f"images a second; gradients {max(ours):.1e} from f32's (PyTorch in bf16 {max(bound):.1e}), {worst:.2f} of the bound; "
              f"{sum(row.kept for row in patched.rows)} of {len(patched.rows)} convolutions", flush=True)
    if world > 1:
        distributed.destroy_process_group()
    return int(worst > 1)


if __name__ == "__main__":
    sys.exit(main())
