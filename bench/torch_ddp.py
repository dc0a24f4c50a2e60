#!/usr/bin/env python3
"""What a second GPU brings: ResNet-50 in training, patched, by DistributedDataParallel.

    torchrun --nproc-per-node 2 bench/torch_ddp.py
    torchrun --nproc-per-node 2 bench/torch_ddp.py --graphs   each process's step is a CUDA graph, the exchange of gradients with it
    torchrun --nproc-per-node 2 bench/torch_ddp.py --shared   without a second one: both processes on one GPU, through gloo, for the gradients

prints images a second on one GPU and on all, patched and by PyTorch alone, and how far the gradients are from those of one GPU on the joint batch. The bound: twice
the l2 distance, parameter by parameter, between PyTorch's own gradients in bf16 and in f32 on the joint batch. Batch norm is in
evaluation mode for that comparison, since its statistics are each GPU's own: buffers are not broadcast."""
import argparse
import contextlib
import copy
import os
import sys
import time

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import faltung.torch as ft
from torch_models import synchronize
from torch_zoo import MODELS


def gradients(model, x, dtype):
    model.zero_grad()
    with torch.autocast(x.device.type, dtype, enabled=dtype is not torch.float32):
        y = model(x)
    y.float().square().mean().backward()
    return [p.grad.detach().double().clone() for p in model.parameters()]


def distances(these, those):
    return [((a - b).norm() / b.norm().clamp_min(1e-30)).item() for a, b in zip(these, those)]


def ms_a_step(step, device, steps, blocks=5):
    """The median of blocks, as many on every GPU: they wait for each other."""
    times = []
    for block in range(blocks + 1):
        synchronize(device)
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        synchronize(device)
        times.append((time.perf_counter() - begin) * 1e3 / steps)
    return sorted(times[1:])[blocks // 2]


def captured(step):
    """The step as a CUDA graph; before, as DistributedDataParallel wants it, eleven steps on another stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(11):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):  # NCCL's own thread asks for events meanwhile
        step()
    return graph.replay


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", choices=MODELS)
    parser.add_argument("--batch", type=int, default=64, help="of each GPU")
    parser.add_argument("--size", type=int, help="of the images")
    parser.add_argument("--steps", type=int, default=10, help="in a block, of which there are six")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu shows that it runs")
    parser.add_argument("--shared", action="store_true", help="all processes on the first GPU, through gloo: gradients are compared, nothing is timed")
    parser.add_argument("--graphs", action="store_true", help="steps are captured as CUDA graphs")
    parser.add_argument("--compared", type=int, default=8, help="images of each GPU whose gradients are compared")
    options = parser.parse_args()
    options.compared = min(options.compared, options.batch)
    rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    on_cuda = options.device == "cuda"
    device = f"cuda:{0 if options.shared else rank}" if on_cuda else "cpu"
    if on_cuda:
        torch.cuda.set_device(device)
    torch.backends.cudnn.allow_tf32 = False

    def say(*what, everybody=False):
        if rank == 0 or everybody:
            print(f"{time.perf_counter() - begin:5.1f} s:", *what, flush=True)
    begin = time.perf_counter()
    through_nccl = on_cuda and not options.shared
    distributed.init_process_group("nccl" if through_nccl else "gloo", device_id=torch.device(device) if through_nccl else None)
    torch.manual_seed(1)
    make, _, size = MODELS[options.model]
    size = options.size or size
    model = make().to(device).to(memory_format=torch.channels_last)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    generator = torch.Generator(options.device).manual_seed(2)
    joint = torch.randn(world * options.batch, 3, size, size, device=device, generator=generator).to(memory_format=torch.channels_last)
    x = joint[rank * options.batch:(rank + 1) * options.batch]
    with torch.no_grad():
        model.train()(joint[:options.batch])
    statistics = [(buffer, buffer.clone()) for buffer in model.buffers()]
    small = joint[:world * options.compared]
    exact, rounded = (gradients(model.eval(), small, dtype) for dtype in (torch.float32, torch.bfloat16))
    say("PyTorch's own gradients")
    torch.backends.cudnn.benchmark = True

    def step_of(module):
        def step():
            with torch.autocast(options.device, torch.bfloat16):
                y = module(x)
            y.float().square().mean().backward()
            module.zero_grad()
        return step

    def spread(model):
        """The module that runs on all. Made on another stream, as capturing wants it."""
        with torch.cuda.stream(torch.cuda.Stream()) if options.graphs else contextlib.nullcontext():
            whole = DistributedDataParallel(model, device_ids=[torch.device(device)] if on_cuda else None, broadcast_buffers=False, gradient_as_bucket_view=True)
        synchronize(options.device)
        return whole

    def compare(who, model):
        made = captured if options.graphs else lambda step: step
        alone = ms_a_step(made(step_of(model)), device, options.steps)
        distributed.barrier()
        whole = spread(model)
        both = ms_a_step(made(step_of(whole)), device, options.steps)
        distributed.barrier()
        say(f"{who}, {options.model}, batch {options.batch}{', captured' * options.graphs}: {alone:.2f} ms a step on one, {both:.2f} ms on {world}: "
            f"{1e3 * world * options.batch / both:.0f} images a second, {world * alone / both:.3f} times as many")
        return whole
    model.train()
    plain = copy.deepcopy(model)
    with torch.autocast(options.device, torch.bfloat16):
        patched = ft.patch(model, x, min_time=3.0)
    say(f"patched: {sum(row.kept for row in patched.rows)} of {len(patched.rows)} convolutions", everybody=True)
    whole = spread(model) if options.shared else compare("patched", model)
    with torch.no_grad():
        for buffer, before in statistics:  # which steps in training have moved
            buffer.copy_(before)
    part = small[rank * options.compared:(rank + 1) * options.compared]
    ours, bound = distances(gradients(whole.eval(), part, torch.bfloat16), exact), distances(rounded, exact)
    worst = max(a / (2 * b) for a, b in zip(ours, bound))
    say(f"gradients {max(ours):.1e} from f32's, PyTorch's in bf16 {max(bound):.1e}: {worst:.2f} of the bound")
    if not options.shared:
        compare("PyTorch", plain)
    distributed.destroy_process_group()
    return int(worst > 1)


if __name__ == "__main__":
    sys.exit(main())
