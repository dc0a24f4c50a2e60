#!/usr/bin/env python3
"""Networks as ONNX files with random weights: their operators and sizes are the published ones, what they compute is
nothing. BatchNormalization is folded, as exporters do it.

    network_models.py FOLDER [NAME...]     (python3 with onnx and NumPy)
"""
import math
import pathlib
import sys

import numpy
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self, seed=1):
        self.nodes, self.constants = [], []
        self.random = numpy.random.default_rng(seed)

    def node(self, op, inputs, **attributes):
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, array):
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x, c, k, size=1, stride=1, groups=1, activation=None):
        weights = self.random.standard_normal((k, c // groups, size, size), numpy.float32) * math.sqrt(groups / c) / size
        bias = self.random.standard_normal(k, numpy.float32) * numpy.float32(0.1)
        y = self.node("Conv", [x, self.constant(weights), self.constant(bias)], kernel_shape=[size, size],
                      strides=[stride, stride], pads=[size // 2] * 4, group=groups)
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
        weights = self.random.standard_normal((classes, channels), numpy.float32) / numpy.float32(math.sqrt(channels))
        return self.node("Gemm", [x, self.constant(weights), self.constant(numpy.zeros(classes, numpy.float32))], transB=1)

    def save(self, output, file, size):
        graph = helper.make_graph(self.nodes, file.stem, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, size, size])],
                                  [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.constants)
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


def unet(b):
    widths, x, channels, kept = (32, 64, 128, 256), "x", 3, []
    for width in widths:
        x = b.conv(b.conv(x, channels, width, 3, activation="Relu"), width, width, 3, activation="Relu")
        kept.append(x)
        channels = width
        if width != widths[-1]:
            x = b.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    for width, other in zip(widths[-2::-1], kept[-2::-1]):
        weights = b.random.standard_normal((2 * width, width, 2, 2), numpy.float32) / numpy.float32(math.sqrt(2 * width))
        up = b.node("ConvTranspose", [x, b.constant(weights)], kernel_shape=[2, 2], strides=[2, 2])
        x = b.conv(b.node("Concat", [up, other], axis=1), 2 * width, width, 3, activation="Relu")
        x = b.conv(x, width, width, 3, activation="Relu")
    return b.conv(x, widths[0], 21)


SIZES = {"resnet50": (resnet50, 224), "efficientnet_b2": (efficientnet_b2, 288), "mobilenet_v3_large": (mobilenet_v3_large, 224),
         "unet": (unet, 224)}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or SIZES:
        make, size = SIZES[name]
        builder = Builder()
        builder.save(make(builder), folder / f"{name}.onnx", size)


if __name__ == "__main__":
    main()
