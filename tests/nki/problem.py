"""A forward problem of two dimensions, from its text; its data, its result in float64 and the bound on a result's error."""
import math
import re

import numpy as np

ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
SMALLEST = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}
NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
U = 2.0**-24


def _erf(x):
    return np.vectorize(math.erf, otypes=[float])(x)


# With the largest slope, and the absolute error of its evaluation for a magnitude: as src/problem/tolerance.cpp derives them.
ACTIVATIONS = {
    "relu": (lambda x, a: np.maximum(x, 0), 1, lambda m: 0),
    "relu6": (lambda x, a: np.clip(x, 0, 6), 1, lambda m: 0),
    "leaky_relu": (lambda x, a: np.where(x < 0, a * x, x), None, lambda m: U * m),
    "sigmoid": (lambda x, a: 1 / (1 + np.exp(-x)), 0.25, lambda m: 8 * U),
    "silu": (lambda x, a: x / (1 + np.exp(-x)), 1.1, lambda m: 8 * U * m),
    "gelu": (lambda x, a: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))), 1.13, lambda m: 8 * U * m),
    "gelu_tanh": (lambda x, a: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), 1.13, lambda m: 8 * U * m),
    "hardswish": (lambda x, a: x * np.clip(x + 3, 0, 6) / 6, 1.5, lambda m: 8 * U * m),
}


def _pair(text):
    both = [int(n) for n in text.split("x")]
    return both * 2 if len(both) == 1 else both


def _sides(text):
    if "." in text:
        return [int(n) for n in text.split(".")]
    h, w = _pair(text)
    return [h, h, w, w]


class Problem:
    def __init__(self, text):
        self.text = text
        self.stride, self.pad, self.dilation, self.groups = [1, 1], [0, 0, 0, 0], [1, 1], 1
        self.dtype, self.layout = "f32", "nchw"
        self.bias = self.residual = False
        self.activation, self.slope, self.pool = None, 0.0, None
        for field in text.split(":"):
            if re.match(r"n\d", field):
                sizes = {letter: int(number) for letter, number in re.findall(r"([a-z])(\d+)", field)}
                self.n, self.c, self.h, self.w, self.k = (sizes.get(letter, 1) for letter in "nchwk")
                self.r, self.s = sizes.get("r", 1), sizes.get("s", 1)
            elif field.startswith("st"):
                self.stride = _pair(field[2:])
            elif field.startswith("pad"):
                self.pad = _sides(field[3:])
            elif field.startswith("dil"):
                self.dilation = _pair(field[3:])
            elif re.fullmatch(r"g\d+", field):
                self.groups = int(field[1:])
            elif field in NAMES:
                self.dtype = field
            elif field in ("nchw", "nhwc"):
                self.layout = field
            elif field in ("bias", "residual"):
                setattr(self, field, True)
            elif field.split("(")[0] in ACTIVATIONS:
                self.activation = field.split("(")[0]
                self.slope = float(np.float32(field[11:-1])) if "(" in field else float(np.float32(0.01))
            elif field[:7] in ("maxpool", "avgpool"):
                size, stride, pad = re.fullmatch(r"(\d+(?:x\d+)?)(?:s(\d+(?:x\d+)?))?(?:p([\d.x]+))?", field[7:]).groups()
                self.pool = (field[:3], _pair(size), _pair(stride or size), _sides(pad or "0"))
            elif field != "fwd":
                raise ValueError(f"{text}: {field}")
        if not re.search(r"h\d", text.split(":")[1]):  # of one dimension, the width
            self.stride[0] = self.dilation[0] = 1
            self.pad[:2] = [0, 0]

    def shape(self, n, c, h, w):
        return (n, c, h, w) if self.layout == "nchw" else (n, h, w, c)

    def planes(self, array):
        return array if self.layout == "nchw" else array.transpose(0, 3, 1, 2)

    def data(self, seed, integers):
        """x, w, bias and residual as the problem has them, in what float32 and the dtype both hold."""
        from nki.machine import rounded
        draw = np.random.default_rng(seed)
        terms = self.c // self.groups * self.r * self.s
        def tensor(shape, scale):
            if integers:
                return draw.integers(-2, 3, shape).astype(np.float32)
            return np.asarray(rounded(draw.uniform(-1, 1, shape) * scale, NAMES[self.dtype]), np.float32)
        p, q = self.conv_size()
        arrays = [tensor(self.shape(self.n, self.c, self.h, self.w), 1), tensor(self.shape(self.k, self.c // self.groups, self.r, self.s), 2 / math.sqrt(terms))]
        arrays += [tensor((self.k,), 1)] if self.bias else []
        return arrays + ([tensor(self.shape(self.n, self.k, p, q), 1)] if self.residual else [])

    def conv_size(self):
        return tuple((size + self.pad[2 * i] + self.pad[2 * i + 1] - self.dilation[i] * (taps - 1) - 1) // self.stride[i] + 1
                     for i, (size, taps) in enumerate(((self.h, self.r), (self.w, self.s))))

    def expected(self, x, w, bias=None, residual=None):
        """The result in float64 and the bound on a right answer's distance from it, element by element."""
        if self.residual and not self.bias:
            bias, residual = None, bias
        value, magnitude = self._convolve(x, w), self._convolve(np.abs(x), np.abs(w))
        if self.bias:
            value, magnitude = value + bias[:, None, None].astype(float), magnitude + np.abs(bias)[:, None, None]
        if self.residual:
            rest = self.planes(residual).astype(float)
            value, magnitude = value + rest, magnitude + np.abs(rest)
        growth = self.c // self.groups * self.r * self.s + self.bias + self.residual
        steepest, evaluation = 1, 0 * magnitude
        if self.activation:
            function, steepest, evaluate = ACTIVATIONS[self.activation]
            steepest = max(1, abs(self.slope)) if steepest is None else steepest
            value, evaluation = function(value, self.slope), evaluate(magnitude) + 0 * magnitude
        relative = growth * U / (1 - min(0.5, growth * U))
        computed = steepest * relative * magnitude + evaluation
        if self.pool:
            value, largest = self._pool(value), self._pool(magnitude, "max")
            computed = self._pool(computed, "max")
            if self.pool[0] == "avg":
                window = self.pool[1][0] * self.pool[1][1]
                computed = computed + ((window + 1) * U + ROUNDOFF[self.dtype]) * steepest * largest
        bound = computed + ROUNDOFF[self.dtype] * (np.abs(value) + computed) + SMALLEST[self.dtype]
        return value, bound

    def is_exact(self):
        """Whether small integers give the result to the bit: every operation on them is exact in float32."""
        return self.activation in (None, "relu", "relu6") and (self.pool is None or self.pool[0] == "max")

    def _convolve(self, x, w):
        x, w = self.planes(x).astype(float), self.planes(w).astype(float)
        image = np.pad(x, [(0, 0), (0, 0), self.pad[:2], self.pad[2:]])
        p, q = self.conv_size()
        w = w.reshape(self.groups, self.k // self.groups, *w.shape[1:])
        y = 0.0
        for r in range(self.r):
            for s in range(self.s):
                h, v = r * self.dilation[0], s * self.dilation[1]
                part = image[:, :, h:h + (p - 1) * self.stride[0] + 1:self.stride[0], v:v + (q - 1) * self.stride[1] + 1:self.stride[1]]
                part = part.reshape(self.n, self.groups, -1, p * q)
                y = y + np.matmul(w[None, ..., r, s], part).reshape(self.n, self.k, p, q)
        return y

    def _pool(self, y, kind=None):
        kind, size, stride, pad = kind or self.pool[0], *self.pool[1:]
        lowest = -np.inf if kind == "max" else 0.0
        def windows(array, fill):
            array = np.pad(array, [(0, 0), (0, 0), pad[:2], pad[2:]], constant_values=fill)
            view = np.lib.stride_tricks.sliding_window_view(array, size, (2, 3))
            return view[:, :, ::stride[0], ::stride[1]]
        if kind == "max":
            return windows(y, lowest).max((-1, -2))
        return windows(y, 0.0).sum((-1, -2)) / windows(np.ones_like(y), 0.0).sum((-1, -2))


def random_problem(draw):
    """One that is quick to simulate; every field varied."""
    def pick(*values):
        return values[draw.integers(len(values))]
    def between(least, most):
        return int(draw.integers(least, most + 1))
    while True:
        r, s = between(1, 7), between(1, 7)
        r, s = (r, r) if pick(True, False) else (r, s)
        dil = [pick(1, 1, 1, 2), pick(1, 1, 1, 3)]
        stride = [pick(1, 1, 2, 3), pick(1, 1, 2)]
        groups = pick(1, 1, 1, 2, 3, 8)
        c_of, k_of = pick(1, 3, 4, 16, between(1, 150)), pick(1, 2, 5, 16, between(1, 150))
        if groups == 1 and pick(True, False, False):
            groups, c_of, k_of = between(2, 140), 1, pick(1, 1, 2)
        c, k, n, h, w = groups * c_of, groups * k_of, pick(1, 1, 2, 3), between(1, 30), between(1, 40)
        pads = [min(between(0, 3), size - 1) if pick(True, False) else 0 for size in (r, r, s, s)]
        p = (h + pads[0] + pads[1] - dil[0] * (r - 1) - 1) // stride[0] + 1
        q = (w + pads[2] + pads[3] - dil[1] * (s - 1) - 1) // stride[1] + 1
        if p < 1 or q < 1 or c > 300 or k > 300 or n * p * q * c_of * k * r * s > 3e8 or max(c_of, 1) * r * s * k > 3e6:
            continue
        text = (f"fwd:n{n}c{c}h{h}w{w}k{k}r{r}s{s}:st{stride[0]}x{stride[1]}:pad{'.'.join(map(str, pads))}:dil{dil[0]}x{dil[1]}:g{groups}"
                f":{pick('f32', 'f16', 'bf16')}:{pick('nchw', 'nhwc')}")
        text += pick("", ":bias", ":bias:residual", ":residual")
        text += pick("", "", "", ":relu", ":relu6", ":leaky_relu(0.1)", ":sigmoid", ":silu", ":gelu", ":gelu_tanh", ":hardswish")
        size = [min(pick(1, 2, 2, 3), p), min(pick(1, 2, 2, 3), q)]
        if pick(True, False):
            pool = f":{pick('max', 'avg')}pool{size[0]}x{size[1]}s{pick(1, 2)}x{pick(1, 2, 3)}"
            sides = [between(0, size[0] // 2), between(0, size[0] // 2), between(0, size[1] // 2), between(0, size[1] // 2)]
            pool += "p" + ".".join(map(str, sides)) if pick(True, False) else ""
            text += pool
        return text
