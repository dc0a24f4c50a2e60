"""torch.ops.faltung on problems drawn at random, every field varied, beside what PyTorch has of the same tensors in float64. A hundred a
direction on CUDA and where FALTUNG_TEST_FULL is set, fewer on the CPU otherwise; FALTUNG_TEST_SEED draws others. A failure names its
number, which repeats it.

An error is bounded element by element, as docs/accuracy.md derives it: n roundings of fp32, n the length of the sum, each of the sum of
the products' absolute values at most, which PyTorch computes as well; and one to the dtype."""
import os
import random

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import faltung.torch  # noqa: E402,F401
from torch_cases import format_of  # noqa: E402

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
DIRECTIONS = ["forward", "backward_data", "backward_weights"]
ROUNDING = {torch.float32: (2**-24, 2**-150), torch.float16: (2**-11, 2**-25), torch.bfloat16: (2**-8, 2**-134)}  # normal and denormal
SEED = int(os.environ.get("FALTUNG_TEST_SEED", "1"))


class Drawn:
    """A problem: its fields, drawn again until the filter fits."""

    def __init__(self, number):
        draw = random.Random(f"{SEED} {number}")
        self.direction = DIRECTIONS[number % 3]
        self.dtype = draw.choice(list(ROUNDING))
        self.format = draw.choice([torch.contiguous_format, torch.channels_last])
        self.transposed, self.bias = draw.random() < 0.3, draw.random() < 0.5
        while not self.fits(draw):
            pass

    def fits(self, draw):
        d = draw.choice([1, 2, 2, 2, 3])
        self.groups = draw.choice([1, 1, 1, 2, 3, 8, 24])
        width = [1, 2, 3, 5, 8, 16, 17, 32, 64] if self.groups < 8 else [1, 1, 2, 4]
        self.n, c, k = draw.randint(1, 3), self.groups * draw.choice(width), self.groups * draw.choice(width)
        image = [draw.randint(1, {1: 200, 2: 15, 3: 7}[d]) for _ in range(d)]
        kernel = [draw.choice([1, 2, 3, 3, 4, 5, 7] if d < 3 else [1, 2, 3]) for _ in range(d)]
        one_each = lambda values: [draw.choice(values)] * d if draw.random() < 0.5 else [draw.choice(values) for _ in range(d)]  # noqa: E731
        self.stride, self.dilation = one_each([1, 1, 2, 3]), one_each([1, 1, 1, 2])
        reach = [t * (f - 1) + 1 for t, f in zip(self.dilation, kernel)]
        before = [draw.randint(0, r - 1) for r in reach]
        after = before if draw.random() < 0.6 else [draw.randint(0, r - 1) for r in reach]
        self.sides = [(b, a) for b, a in zip(before, after)]
        self.more = [draw.randint(0, s - 1) for s in self.stride] if self.transposed else [0] * d
        self.x, self.w = (self.n, c, *image), (c, k // self.groups, *kernel) if self.transposed else (k, c // self.groups, *kernel)
        if self.transposed:
            out = [(i - 1) * s + r - sum(p) + m for i, s, r, p, m in zip(image, self.stride, reach, self.sides, self.more)]
        else:
            out = [(i + sum(p) - r) // s + 1 for i, s, r, p in zip(image, self.stride, reach, self.sides)]
        self.y = (self.n, k, *out)
        return min(out) > 0

    def by_torch(self, x, w, b=None):
        """PyTorch's own function; padding that is not the same at both ends is PyTorch's F.pad."""
        d, equal = len(self.stride), all(b == a for b, a in self.sides)
        padding = [b if equal else 0 for b, _ in self.sides]
        function = getattr(F, f"conv{'_transpose' * self.transposed}{d}d")
        backwards = list(reversed(self.sides))
        if not self.transposed:
            x = x if equal else F.pad(x, [p for side in backwards for p in side])
            return function(x, w, b, self.stride, padding, self.dilation, self.groups)
        if equal and all(m < max(s, t) for m, s, t in zip(self.more, self.stride, self.dilation)):
            return function(x, w, b, self.stride, padding, self.more, self.groups, self.dilation)
        y = function(x, w, None, self.stride, 0, 0, self.groups, self.dilation)
        y = F.pad(y, [p for (b, a), m in zip(backwards, reversed(self.more)) for p in (-b, m - a)])
        return y if b is None else y + b.reshape(-1, *[1] * d)

    def right(self, tensors):
        """In float64, of the direction."""
        x, w, b, dy = (None if t is None else t.cpu().double().requires_grad_() for t in tensors)
        y = self.by_torch(x, w, b)
        assert y.shape == self.y, self
        if self.direction == "forward":
            return y.detach()
        return torch.autograd.grad(y, x if self.direction == "backward_data" else w, dy)[0]

    def ours(self, x, w, b, dy):
        geometry = [self.stride, [p for side in self.sides for p in side], self.dilation, self.groups] + [self.more] * self.transposed
        name = f"conv{'_transpose' * self.transposed}{len(self.stride)}d"
        op = getattr(torch.ops.faltung, name + {"forward": "", "backward_data": "_input_grad", "backward_weights": "_weight_grad"}[self.direction])
        if self.direction == "forward":
            return op(x, w, b, *geometry)
        return op(dy, w, list(self.x), *geometry) if self.direction == "backward_data" else op(dy, x, list(self.w), *geometry)

    def length(self):
        """Of the sum that an element is."""
        (c, k), taps = (self.x[1], self.y[1]), torch.Size(self.w[2:]).numel()
        if self.direction == "backward_weights":
            return self.n * torch.Size((self.x if self.transposed else self.y)[2:]).numel()
        return (c if self.direction == "forward" else k) // self.groups * taps

    def tensors(self, device):
        generator = torch.Generator().manual_seed(SEED)
        def random_of(shape):
            values = torch.randn(shape, generator=generator).to(device, self.dtype)
            return values.contiguous(memory_format=format_of(values, self.format))
        bias = self.bias and self.direction == "forward"
        return random_of(self.x), random_of(self.w), random_of(self.y[1:2]) if bias else None, random_of(self.y)

    def __str__(self):
        return (f"{self.direction}{' transposed' * self.transposed} x {self.x} w {self.w} stride {self.stride} padding {self.sides} dilation "
                f"{self.dilation} groups {self.groups} output padding {self.more} {self.dtype} {self.format}")


def wrong(number, device):
    """How the result is, in words; nothing where it is right."""
    problem = Drawn(number)
    tensors = problem.tensors(device)
    expected = problem.right(tensors)
    ours = problem.ours(*tensors)
    if ours.dtype != problem.dtype or ours.shape != expected.shape:
        return f"number {number}, {problem}: {ours.dtype} {tuple(ours.shape)}"
    magnitude = problem.right([None if t is None else t.abs() for t in tensors])
    error = (problem.length() + (tensors[2] is not None)) * 2**-24 * magnitude
    normal, denormal = ROUNDING[problem.dtype]
    bound = error + normal * (expected.abs() + error) + denormal
    worst = ((ours.cpu().double() - expected).abs() / bound).nan_to_num(float("inf")).max().item()
    return "" if worst <= 1 else f"number {number}, {problem}: {worst:.3g} times the bound"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_pytorchs_results(direction, device):
    count = 100 if device == "cuda" or os.environ.get("FALTUNG_TEST_FULL") else 40
    numbers = range(DIRECTIONS.index(direction), 3 * count, 3)
    assert Drawn(numbers[0]).direction == direction
    assert not list(filter(None, (wrong(number, device) for number in numbers)))


def test_every_field_varies():
    drawn = [Drawn(number) for number in range(300)]
    for direction in DIRECTIONS:
        problems = [p for p in drawn if p.direction == direction]
        met = {str(v) for p in problems for v in (p.dtype, p.format, f"{len(p.stride)} transposed {p.transposed}", f"groups {p.groups}",
                                                  f"dilated {max(p.dilation) > 1}", f"strided {max(p.stride) > 1}",
                                                  f"unequal strides {len(set(p.stride)) > 1}", f"unequal padding {p.sides != [(b, b) for b, _ in p.sides]}",
                                                  f"depthwise {1 < p.groups == p.x[1]}", f"more {max(p.more) > 0}")}
        assert len(met) == 3 + 2 + 6 + 5 + 2 * 6, met
