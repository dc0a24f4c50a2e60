"""An ONNX file as a module of PyTorch, of the few operators that the networks of OCR consist of."""
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper


def _padded(x, kernel, strides, pads, auto_pad, value=0.0):
    if auto_pad == b"SAME_UPPER":  # of sizes that the strides divide
        more = [k - s for k, s in zip(kernel, strides)]
        pads = [m // 2 for m in more] + [m - m // 2 for m in more]
    top, left, bottom, right = pads
    return F.pad(x, (left, right, top, bottom), value=value) if any(pads) else x


def _convolution(x, w, bias=None, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1, auto_pad=b"NOTSET", **_):
    if auto_pad == b"NOTSET" and pads[:2] == pads[2:]:
        return F.conv2d(x, w, bias, strides, pads[:2], dilations, group)
    return F.conv2d(_padded(x, w.shape[2:], strides, pads, auto_pad), w, bias, strides, 0, dilations, group)


def _max_pool(x, kernel_shape, strides=(1, 1), pads=(0, 0, 0, 0), auto_pad=b"NOTSET", **_):
    return F.max_pool2d(_padded(x, kernel_shape, strides, pads, auto_pad, float("-inf")), kernel_shape, strides)


OPERATORS = {
    "Identity": lambda x: x, "Add": torch.add, "Mul": torch.mul, "Div": torch.div, "Erf": torch.erf, "Relu": F.relu, "Sigmoid": torch.sigmoid,
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: torch.clamp(x * alpha + beta, 0, 1),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "ReduceMean": lambda x, axes, keepdims: x.mean(axes, keepdim=bool(keepdims)),
    "Concat": lambda *all, axis: torch.cat(all, axis), "Conv": _convolution, "MaxPool": _max_pool,
    "ConvTranspose": lambda x, w, bias=None, strides=(1, 1), **_: F.conv_transpose2d(x, w, bias, strides),
    "Resize": lambda x, roi, scales, **_: F.interpolate(x, scale_factor=scales, mode="nearest"),
}


class Network(torch.nn.Module):
    def __init__(self, file):
        super().__init__()
        graph = onnx.load(file).graph
        arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        scales = {node.input[-1] for node in graph.node if node.op_type == "Resize"}
        self.scales = {name: tuple(map(float, arrays.pop(name)[2:])) for name in scales}
        self.names = {name: f"constant{i}" for i, name in enumerate(arrays)}
        for name, array in arrays.items():
            self.register_buffer(self.names[name], torch.from_numpy(array.copy()))
        self.steps = [(OPERATORS[node.op_type], list(node.input), node.output[0],
                       {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}) for node in graph.node]
        self.inputs, self.output = [i.name for i in graph.input if i.name not in arrays and i.name not in scales], graph.output[0].name

    def forward(self, *inputs):
        values = dict(zip(self.inputs, inputs)) | self.scales | {"": None}
        for function, names, output, attributes in self.steps:
            given = [getattr(self, self.names[name]) if name in self.names else values[name] for name in names]
            values[output] = function(*given, **attributes)
        return values[self.output]
