"""torch.compile(backend="faltung") of models drawn at random, forward and backward, beside the same run eagerly. AOTAutograd's graphs
are run as they are, not by inductor; which passes are faltung's is drawn, too. A failure names the seed, which repeats it."""
import copy
import random

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import faltung.torch as ft  # noqa: E402
from faltung.torch import _backend, _choice  # noqa: E402

SEEDS = range(12)
ACTIVATIONS = [F.relu, torch.relu, F.silu, F.relu6, F.hardswish, torch.sigmoid, lambda x: F.relu(x, inplace=True), lambda x: x.relu_()]


class Drawn(nn.Module):
    """One operator after the other, each on a tensor that one of the last few made."""

    def __init__(self, draw):
        super().__init__()
        self.dimensions, self.modules_by_step, self.steps = draw.choice([1, 2, 2, 2, 3]), nn.ModuleList(), []
        channels = [draw.choice([4, 6])]
        self.shape = (2, channels[0], *[draw.randint(6, 9) for _ in range(self.dimensions)])
        for _ in range(draw.randint(3, 7)):
            self.steps.append(self.step(draw, channels))

    def step(self, draw, channels):
        kind = draw.choice(["conv", "conv", "conv", "norm", "activation", "activation", "add", "add", "again", "scale", "pool", "detach"])
        source = draw.randrange(max(0, len(channels) - 3), len(channels))
        convolutions = [i for i, m in enumerate(self.modules_by_step) if not isinstance(m, nn.modules.batchnorm._BatchNorm)]
        if kind == "conv" or (kind == "again" and not convolutions):
            source = len(channels) - 1 if draw.random() < 0.7 else source
            channels.append(draw.choice([4, 6]))
            self.modules_by_step.append(self.convolution(draw, channels[source], channels[-1]))
            return "module", source, len(self.modules_by_step) - 1
        if kind == "norm":
            source = len(channels) - 1
            norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[self.dimensions - 1](channels[source])
            norm.running_mean.uniform_(-1, 1), norm.running_var.uniform_(0.5, 2)
            self.modules_by_step.append(norm)
            channels.append(channels[source])
            return "module", source, len(self.modules_by_step) - 1
        if kind == "again":  # a convolution that ran already, where it fits
            which = draw.choice(convolutions)
            fits = self.modules_by_step[which].in_channels == channels[-1]
            channels.append(self.modules_by_step[which].out_channels if fits else channels[-1])
            return ("module", len(channels) - 2, which) if fits else ("scale", len(channels) - 2, 0.5)
        source = len(channels) - 1 if kind == "activation" else source
        channels.append(channels[source])
        return kind, source, {"activation": draw.randrange(len(ACTIVATIONS)), "add": (draw.randrange(len(channels) - 1), draw.random() < 0.4),
                              "scale": draw.uniform(0.5, 1.5)}.get(kind)

    def convolution(self, draw, c, k):
        size, groups = draw.choice([1, 2, 3, 3]), draw.choice([1, 1, 2])
        if draw.random() < 0.15:
            made = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[self.dimensions - 1]
            return made(c, k, size, stride=draw.choice([1, 2]), groups=groups, bias=draw.random() < 0.5)
        made = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[self.dimensions - 1]
        padding = "same" if draw.random() < 0.2 else size // 2
        stride = 1 if padding == "same" else draw.choice([1, 1, 1, 2])
        return made(c, k, size, stride=stride, padding=padding, dilation=draw.choice([1, 1, 2]) if size > 1 and padding == "same" else 1,
                    groups=groups, bias=draw.random() < 0.5)

    def forward(self, x):
        tensors = [x * 1]
        for kind, source, what in self.steps:
            y = tensors[source]
            if kind == "module":
                y = self.modules_by_step[what](y)
            elif kind == "activation":
                y = ACTIVATIONS[what](y if what < 6 else y.clone() if torch.is_grad_enabled() else y)
            elif kind == "add":
                other, in_place = tensors[what[0]], what[1] and not torch.is_grad_enabled() and y is not tensors[what[0]]
                if other.shape == y.shape:
                    y = y.add_(other) if in_place else y + other
            elif kind == "scale":
                y = y * what
            elif kind == "pool" and min(y.shape[2:]) > 3:
                y = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[self.dimensions - 1](y, 2)
            elif kind == "detach":
                y = y + y.detach().mean()
            tensors.append(y)
        return tensors[-1], tensors[len(tensors) // 2].sum()


@pytest.fixture
def chosen(monkeypatch):
    """Passes are faltung's as drawn; counts what becomes of convolutions."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor import compile_fx as inductor
    from torch._inductor.decomposition import select_decomp_table
    draw, counts, replace = random.Random(), {"replaced": 0, "fused": 0, "asked": 0, "ours": 0}, _backend.replace

    def noted(*arguments, **named):
        replaced, fused = replace(*arguments, **named)
        counts["replaced"] += replaced
        counts["fused"] += fused
        return replaced, fused

    def drawn(key, measure, like):
        counts["asked"] += 1
        ours = draw.random() < 0.7
        counts["ours"] += ours
        return ours

    def compile_fx(graph, inputs, inner_compile, config_patches=None):
        by = aot_autograd(fw_compiler=inner_compile, bw_compiler=inner_compile, decompositions=select_decomp_table(),
                          keep_inference_input_mutations=True)
        return by(graph, inputs)
    monkeypatch.setattr(_backend, "replace", noted)
    monkeypatch.setattr(_choice, "_remembered", drawn)
    monkeypatch.setattr(inductor, "compile_fx", compile_fx)
    monkeypatch.setattr(inductor, "compile_fx_inner", lambda inner, inputs, **keywords: make_boxed_func(inner.forward))
    torch._dynamo.reset()
    yield draw, counts
    torch._dynamo.reset()


def results(model, run, x, weights):
    """All that a step leaves: the model's results, gradients of parameters and input, and its state."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_(torch.is_grad_enabled())
    y, total = run(x)
    gradients = []
    if torch.is_grad_enabled():
        leaves = [x, *model.parameters()]
        gradients = torch.autograd.grad((y.double() * weights.double()).sum() + 0.1 * total, leaves, allow_unused=True)
    return [y, total, *gradients, *model.buffers()]


def close(ours, right, bound=1e-4):
    """Within a share of the largest element, of what eager mode has in f64."""
    assert len(ours) == len(right)
    for a, b in zip(ours, right):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.shape == b.shape
            assert (a.double() - b.double()).abs().max() <= bound * b.double().abs().max().clamp_min(1e-2)


def once(seed, with_gradients, chosen):
    draw, _ = chosen
    draw.seed(f"{seed} {with_gradients}")
    torch.manual_seed(seed)
    with torch.no_grad():
        model = Drawn(draw).train(with_gradients and draw.random() < 0.5)
    x = torch.randn(model.shape)
    if model.dimensions == 2 and draw.random() < 0.5:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    with torch.set_grad_enabled(with_gradients):
        with torch.no_grad():
            weights = torch.randn_like(copy.deepcopy(model)(x)[0])
        double, plain = copy.deepcopy(model).double(), copy.deepcopy(model)
        right = results(double, double, x.double(), weights)
        close(results(plain, plain, x, weights), right)  # or nothing is told by the comparison
        compiled = torch.compile(model, backend=ft.compile_graph, dynamic=False, fullgraph=True)
        close(results(model, compiled, x, weights), right)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("with_gradients", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_models(seed, with_gradients, chosen):
    once(seed, with_gradients, chosen)


@pytest.mark.filterwarnings("ignore")
def test_what_is_drawn_is_replaced(chosen):
    """Some of it is faltung's, some PyTorch's, and some is fused."""
    for seed in SEEDS[:4]:
        for with_gradients in True, False:
            once(seed, with_gradients, chosen)
    counts = chosen[1]
    assert 0 < counts["ours"] < counts["asked"] and counts["replaced"] > 4 and counts["fused"] > 0, counts
