#!/usr/bin/env python3
"""Networks as ONNX files with random weights: their operators and sizes are the published ones, what they compute is
nothing. BatchNormalization is folded, as exporters do it.

    network_models.py FOLDER [NAME...]     (python3 with onnx and NumPy)
    network_models.py --bare FOLDER [NAME...]   files of some KB, whose weights are all in one file of nothing beside them
"""
import functools
import math
import pathlib
import sys

import numpy
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """bare: without weights, for what asks of shapes alone."""

    def __init__(self, bare=False, seed=1):
        self.nodes, self.constants = [], []
        self.random, self.bare, self.largest = numpy.random.default_rng(seed), bare, 0

    def node(self, op, inputs, **attributes):
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, array):
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, scale, *shape):
        if not self.bare:
            return self.constant(self.random.standard_normal(shape, numpy.float32) * numpy.float32(scale))
        self.largest = max(self.largest, 4 * math.prod(shape))
        tensor = TensorProto(name=f"constant_{len(self.constants)}", dims=shape, data_type=TensorProto.FLOAT,
                             data_location=TensorProto.EXTERNAL)
        for key, value in {"location": BARE, "offset": "0", "length": str(4 * math.prod(shape))}.items():
            tensor.external_data.add(key=key, value=value)
        self.constants.append(tensor)
        return tensor.name

    def conv(self, x, c, k, size=1, stride=1, groups=1, activation=None):
        weights, bias = self.weights(math.sqrt(groups / c) / size, k, c // groups, size, size), self.weights(0.1, k)
        y = self.node("Conv", [x, weights, bias], kernel_shape=[size, size], strides=[stride, stride], pads=[size // 2] * 4,
                      group=groups)
        return self.activate(y, activation)

    def activate(self, x, activation):
        if activation == "silu":  # as PyTorch exports it
            return self.node("Mul", [x, self.node("Sigmoid", [x])])
        return self.node(activation, [x]) if activation else x

    def gate(self, x, channels, squeezed, activation, last):
        """Squeeze and excite."""
        mean = self.node("GlobalAveragePool", [x])
        return self.node("Mul", [x, self.conv(self.conv(mean, channels, squeezed, activation=activation), squeezed, channels,
                                              activation=last)])

    def classify(self, x, channels, classes=1000):
        x = self.node("Flatten", [self.node("GlobalAveragePool", [x])])
        return self.linear(x, channels, classes)

    def linear(self, x, channels, classes):
        weights = self.weights(1 / math.sqrt(channels), classes, channels)
        return self.node("Gemm", [x, weights, self.constant(numpy.zeros(classes, numpy.float32))], transB=1)

    def reshape(self, x, *sizes):
        return self.node("Reshape", [x, self.constant(numpy.array(sizes, numpy.int64))])

    def product(self, x, channels, outputs, bias=True):
        """A linear layer of tokens, as PyTorch exports it."""
        y = self.node("MatMul", [x, self.weights(1 / math.sqrt(channels), channels, outputs)])
        return self.node("Add", [self.weights(0.1, outputs), y]) if bias else y

    def group_norm(self, x, channels, epsilon=1e-5):
        ones, zeros = (self.constant(make(32, numpy.float32)) for make in (numpy.ones, numpy.zeros))
        y = self.node("InstanceNormalization", [self.reshape(x, 0, 32, -1), ones, zeros], epsilon=epsilon)
        y = self.node("Reshape", [y, self.node("Shape", [x])])
        return self.node("Add", [self.node("Mul", [y, self.weights(1, channels, 1, 1)]), self.weights(0.1, channels, 1, 1)])

    def layer_norm(self, x, channels):
        return self.node("LayerNormalization", [x, self.weights(1, channels), self.weights(0.1, channels)], axis=-1, epsilon=1e-5)

    def attention(self, x, width, context, of_context, heads, bias=False):
        """Of tokens to themselves, or to a context."""
        parts = []
        for tokens, channels, order in ((x, width, (0, 2, 1, 3)), (context, of_context, (0, 2, 3, 1)), (context, of_context, (0, 2, 1, 3))):
            y = self.product(tokens, channels, width, bias)
            parts.append(self.node("Transpose", [self.reshape(y, 0, 0, heads, width // heads)], perm=order))
        scale = self.constant(numpy.float32((heads / width) ** 0.25))
        query, key = (self.node("Mul", [part, scale]) for part in parts[:2])
        y = self.node("MatMul", [self.node("Softmax", [self.node("MatMul", [query, key])], axis=-1), parts[2]])
        return self.product(self.reshape(self.node("Transpose", [y], perm=(0, 2, 1, 3)), 0, 0, width), width, width)

    def twice(self, x):
        """Each pixel four times."""
        scales = self.constant(numpy.array([1, 1, 2, 2], numpy.float32))
        return self.node("Resize", [x, "", scales], mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric")

    def gelu(self, x):
        number = lambda value: self.constant(numpy.float32(value))
        erf = self.node("Erf", [self.node("Div", [x, number(math.sqrt(2))])])
        return self.node("Mul", [self.node("Mul", [x, self.node("Add", [erf, number(1)])]), number(0.5)])

    def save(self, output, file, inputs):
        tensor = lambda name, sizes: helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
        graph = helper.make_graph(self.nodes, file.stem, [tensor(name, ["n", *sizes]) for name, sizes in inputs.items()],
                                  [tensor(output, None)], self.constants)
        if self.bare:  # a file that takes no room
            with (file.parent / BARE).open("ab") as zeros:
                zeros.truncate(max(zeros.tell(), self.largest))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        file.write_bytes(model.SerializeToString())


def resnet50(b):
    x = b.node("MaxPool", [b.conv("x", 3, 64, 7, 2, activation="Relu")], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for width, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for stride in [first] + [1] * (blocks - 1):
            y = b.conv(b.conv(x, channels, width, activation="Relu"), width, width, 3, stride, activation="Relu")
            short = x if channels == 4 * width else b.conv(x, channels, 4 * width, 1, stride)
            x = b.activate(b.node("Add", [b.conv(y, width, 4 * width), short]), "Relu")
            channels = 4 * width
    return b.classify(x, channels)


def rounded(channels):
    """To a multiple of 8, never by more than a tenth down."""
    up = max(8, int(channels + 4) // 8 * 8)
    return up + 8 if up < 0.9 * channels else up


def efficientnet_b2(b):
    channels = rounded(32 * 1.1)
    x = b.conv("x", 3, channels, 3, 2, activation="silu")
    for expand, size, first, width, blocks in ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
                                               (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)):
        out = rounded(width * 1.1)
        for stride in [first] + [1] * (math.ceil(blocks * 1.2) - 1):
            inner = channels * expand
            y = x if expand == 1 else b.conv(x, channels, inner, activation="silu")
            y = b.conv(y, inner, inner, size, stride, inner, "silu")
            y = b.conv(b.gate(y, inner, max(1, channels // 4), "silu", "Sigmoid"), inner, out)
            x = b.node("Add", [y, x]) if stride == 1 and channels == out else y
            channels = out
    return b.classify(b.conv(x, channels, 1408, activation="silu"), 1408)


def mobilenet_v3_large(b):
    x, channels = b.conv("x", 3, 16, 3, 2, activation="HardSwish"), 16
    for size, inner, out, gated, activation, stride in (
            (3, 16, 16, 0, "Relu", 1), (3, 64, 24, 0, "Relu", 2), (3, 72, 24, 0, "Relu", 1), (5, 72, 40, 1, "Relu", 2),
            (5, 120, 40, 1, "Relu", 1), (5, 120, 40, 1, "Relu", 1), (3, 240, 80, 0, "HardSwish", 2),
            (3, 200, 80, 0, "HardSwish", 1), (3, 184, 80, 0, "HardSwish", 1), (3, 184, 80, 0, "HardSwish", 1),
            (3, 480, 112, 1, "HardSwish", 1), (3, 672, 112, 1, "HardSwish", 1), (5, 672, 160, 1, "HardSwish", 2),
            (5, 960, 160, 1, "HardSwish", 1), (5, 960, 160, 1, "HardSwish", 1)):
        y = x if inner == channels else b.conv(x, channels, inner, activation=activation)
        y = b.conv(y, inner, inner, size, stride, inner, activation)
        if gated:
            y = b.gate(y, inner, rounded(inner / 4), "Relu", "HardSigmoid")
        y = b.conv(y, inner, out)
        x = b.node("Add", [y, x]) if stride == 1 and channels == out else y
        channels = out
    x = b.node("Flatten", [b.node("GlobalAveragePool", [b.conv(x, 160, 960, activation="HardSwish")])])
    return b.linear(b.node("HardSwish", [b.linear(x, 960, 1280)]), 1280, 1000)


def unet(b, widths=(32, 64, 128, 256), up_bias=False):
    x, channels, kept = "x", 3, []
    for width in widths:
        x = b.conv(b.conv(x, channels, width, 3, activation="Relu"), width, width, 3, activation="Relu")
        kept.append(x)
        channels = width
        if width != widths[-1]:
            x = b.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    for width, other in zip(widths[-2::-1], kept[-2::-1]):
        constants = [b.weights(1 / math.sqrt(2 * width), 2 * width, width, 2, 2)] + ([b.weights(0.1, width)] if up_bias else [])
        up = b.node("ConvTranspose", [x, *constants], kernel_shape=[2, 2], strides=[2, 2])
        x = b.conv(b.node("Concat", [up, other], axis=1), 2 * width, width, 3, activation="Relu")
        x = b.conv(x, width, width, 3, activation="Relu")
    return b.conv(x, widths[0], 21)


def diffusion(b, widths=(320, 640, 1280, 1280), context=768, heads=8, size=64):
    """Stable Diffusion 1.5's U-Net, as bench/network_modules.py has it and PyTorch exports it."""
    times = 4 * widths[0]
    time = b.activate(b.linear(b.activate(b.linear("time", widths[0], times), "silu"), times, times), "silu")

    def block(x, c, k):
        short, added = x if c == k else b.conv(x, c, k), b.linear(time, times, k)
        for axis in (2, 3):
            added = b.node("Unsqueeze", [added, b.constant(numpy.array([axis], numpy.int64))])
        y = b.node("Add", [b.conv(b.activate(b.group_norm(x, c), "silu"), c, k, 3), added])
        y = b.conv(b.activate(b.group_norm(y, k), "silu"), k, k, 3)
        return b.node("Add", [short, y])

    def transformer(x, width, size):
        tokens = b.node("Transpose", [b.conv(b.group_norm(x, width, 1e-6), width, width)], perm=(0, 2, 3, 1))
        tokens = b.reshape(tokens, 0, -1, width)
        norm = b.layer_norm(tokens, width)
        tokens = b.node("Add", [tokens, b.attention(norm, width, norm, width, heads)])
        tokens = b.node("Add", [tokens, b.attention(b.layer_norm(tokens, width), width, "context", context, heads)])
        wide = b.product(b.layer_norm(tokens, width), width, 8 * width)
        b.nodes.append(helper.make_node("Split", [wide], [wide + "_value", wide + "_gate"], wide + "_split", axis=2))
        gated = b.node("Mul", [wide + "_value", b.gelu(wide + "_gate")])
        tokens = b.node("Add", [tokens, b.product(gated, 4 * width, width)])
        y = b.node("Transpose", [b.reshape(tokens, 0, size, size, width)], perm=(0, 3, 1, 2))
        return b.node("Add", [x, b.conv(y, width, width)])

    c, last = widths[0], len(widths) - 1
    x = b.conv("x", 4, c, 3)
    kept = [(x, c)]
    for i, k in enumerate(widths):
        for _ in range(2):
            x, c = block(x, c, k), k
            if i < last:
                x = transformer(x, k, size)
            kept.append((x, c))
        if i < last:
            x, size = b.conv(x, k, k, 3, 2), size // 2
            kept.append((x, c))
    x = block(transformer(block(x, c, c), c, size), c, c)
    for i, k in reversed(list(enumerate(widths))):
        for j in range(3):
            other, more = kept.pop()
            x, c = block(b.node("Concat", [x, other], axis=1), c + more, k), k
            if i < last:
                x = transformer(x, k, size)
        if i > 0:
            x, size = b.conv(b.twice(x), k, k, 3), 2 * size
    return b.conv(b.activate(b.group_norm(x, c), "silu"), c, 4, 3)


def super_resolution(b, width=64, growth=32, blocks=23):
    """Real-ESRGAN x4's generator, as bench/network_modules.py has it and PyTorch exports it."""
    def leaky(x):
        return b.node("LeakyRelu", [x], alpha=0.2)

    def fifth(x):
        return b.node("Mul", [x, b.constant(numpy.float32(0.2))])

    def dense(x):
        every = [x]
        for i in range(4):
            joined = b.node("Concat", every, axis=1) if i else x
            every.append(leaky(b.conv(joined, width + i * growth, growth, 3)))
        return b.node("Add", [x, fifth(b.conv(b.node("Concat", every, axis=1), width + 4 * growth, width, 3))])

    x = y = b.conv("x", 3, width, 3)
    for _ in range(blocks):
        y = b.node("Add", [y, fifth(dense(dense(dense(y))))])
    x = b.node("Add", [x, b.conv(y, width, width, 3)])
    for _ in range(2):
        x = leaky(b.conv(b.twice(x), width, width, 3))
    return b.conv(leaky(b.conv(x, width, width, 3)), width, 3, 3)


def decoder(b, widths=(512, 512, 256, 128), latent=4):
    """The decoder of Stable Diffusion's autoencoders, likewise."""
    def block(x, c, k):
        short = x if c == k else b.conv(x, c, k)
        y = b.conv(b.activate(b.group_norm(x, c, 1e-6), "silu"), c, k, 3)
        return b.node("Add", [short, b.conv(b.activate(b.group_norm(y, k, 1e-6), "silu"), k, k, 3)])

    c = widths[0]
    x = block(b.conv("x", latent, c, 3), c, c)
    tokens = b.node("Transpose", [b.reshape(b.group_norm(x, c, 1e-6), 0, c, -1)], perm=(0, 2, 1))
    tokens = b.attention(tokens, c, tokens, c, 1, bias=True)
    tokens = b.node("Transpose", [tokens], perm=(0, 2, 1))
    x = block(b.node("Add", [x, b.node("Reshape", [tokens, b.node("Shape", [x])])]), c, c)
    for i, k in enumerate(widths):
        for _ in range(3):
            x, c = block(x, c, k), k
        if i < 3:
            x = b.conv(b.twice(x), k, k, 3)
    return b.conv(b.activate(b.group_norm(x, c, 1e-6), "silu"), c, 3, 3)


def image(size):
    return {"x": (3, size, size)}


# What makes each, and its inputs of an image.
NETWORKS = {
    "resnet50": (resnet50, image(224)),
    "efficientnet_b2": (efficientnet_b2, image(288)),
    "mobilenet_v3_large": (mobilenet_v3_large, image(224)),
    "unet": (unet, image(224)),
    "unet_wide": (functools.partial(unet, widths=(64, 128, 256, 512), up_bias=True), image(256)),  # bench/network_modules.py's
    "realesrgan": (super_resolution, image(256)),
    "vae_decoder": (decoder, {"x": (4, "h", "w")}),
    "sd_unet": (diffusion, {"x": (4, 64, 64), "time": (320,), "context": (77, 768)}),
}
# Smaller ones, for devices that the others take too long on (PoCL): written where they are named alone.
SMALL = {
    "realesrgan_24": (super_resolution, image(24)),
    "sd_unet_8": (functools.partial(diffusion, widths=(160, 320, 640, 640), size=8), {"x": (4, 8, 8), "time": (160,), "context": (77, 768)}),
}
BARE = "no.weights"


def main():
    bare = "--bare" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--bare"]
    if not words:
        sys.exit(__doc__)
    folder = pathlib.Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in words[1:] or NETWORKS:
        make, inputs = (NETWORKS | SMALL)[name]
        builder = Builder(bare)
        builder.save(make(builder), folder / f"{name}.onnx", inputs)


if __name__ == "__main__":
    main()
