"""A process of those that test_torch_ddp.py starts: a patched model's gradients by DistributedDataParallel beside PyTorch's of the whole batch."""
import copy
import os

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import faltung.torch as ft

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(1)
model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 16, 3, groups=16, padding=1),
                      nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1)).to(memory_format=torch.channels_last)
joint = torch.randn(8, 3, 12, 12).to(memory_format=torch.channels_last)
plain = copy.deepcopy(model).eval()  # in training batch norm's statistics are each process's own
plain(joint).square().mean().backward()
patched = ft.patch(model.train(), joint[:4], at_least=0, min_time=1, memory_format=torch.channels_last)
assert all(row.kept for row in patched.rows), patched.report()
whole = DistributedDataParallel(model, gradient_as_bucket_view=True)
for _ in range(2):  # after the first the gradients lie in DDP's own memory
    model.zero_grad()
    whole.eval()(joint[4 * rank:4 * rank + 4]).square().mean().backward()
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5 * theirs.grad.abs().max().item(), msg=name)
distributed.barrier()
distributed.destroy_process_group()
if rank == 0:
    print("the gradients are those of the whole batch")
