"""An ONNX file as a module of PyTorch, for inputs of given sizes: what depends on constants and on shapes alone is computed beforehand."""
import operator

import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

from onnx_operators import OPERATORS, Lacking, of

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def _tensor(proto):
    return torch.from_numpy(numpy_helper.to_array(proto).copy())


def _type(element):
    return torch.bfloat16 if element == onnx.TensorProto.BFLOAT16 else _tensor(onnx.helper.make_tensor("", element, [0], [])).dtype


def _attributes(node, opset, dtype):
    all = {}
    for a in node.attribute:
        value = onnx.helper.get_attribute_value(a)
        all[a.name] = _tensor(value) if isinstance(value, onnx.TensorProto) else value.decode() if isinstance(value, bytes) else value
    if node.op_type == "Cast":  # what the file has as f32 is of the network's own type
        to = _type(all["to"])
        all = {"to": dtype if to == torch.float32 else to}
    if node.op_type in ("Softmax", "LogSoftmax") and opset < 13:
        all = {"axis": all.get("axis", 1), "coerced": True}
    if node.op_type == "Split":
        all["count"] = len(node.output)
    if node.op_type == "Resize" and len(node.input) == 2:  # opset 10's
        all |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return all


# What is known of a value, or how to come to it, whatever its elements are.
KNOWING = {"Shape": of(lambda x, start=0, end=None: torch.tensor(x.shape[start:end], dtype=torch.int64)),
           "Size": of(lambda x: torch.tensor(x.numel())),
           "Constant": of(lambda **one: next(torch.as_tensor(value) for value in one.values()))}
ALL = OPERATORS | KNOWING | {"Cast": of(lambda x, to: x.to(to))}


class _Reader:
    """Goes through the nodes with tensors of the device meta, which have shapes alone, in the place of what is not known."""

    def __init__(self, model, sizes, dtype):
        self.graph, self.module, self.dtype, self.nodes = torch.fx.Graph(), torch.nn.Module(), dtype, {}
        self.values = {t.name: _tensor(t) for t in model.graph.initializer} | {"": None}
        self.opset = max([o.version for o in model.opset_import if o.domain in ("", "ai.onnx")], default=1)
        for name, shape in sizes.items():
            self.nodes[name], self.values[name] = self.graph.placeholder(f"input{len(self.nodes)}"), torch.empty(shape, dtype=dtype, device="meta")
        lacking = sorted({node.op_type for node in model.graph.node if node.domain not in ("", "ai.onnx") or node.op_type not in ALL})
        if lacking:
            raise Lacking("PyTorch's reader of ONNX lacks " + ", ".join(lacking))
        for node in model.graph.node:
            try:
                self.read(node)
            except Exception as error:
                raise Lacking(f"{node.op_type} '{node.name or node.output[0]}': {error}") from error
        self.graph.output(tuple(self.seen(o.name) for o in model.graph.output))

    def is_known(self, name):
        return name not in self.nodes

    def seen(self, name):
        """The node that has a value: of a constant as well."""
        if self.is_known(name) and name:
            constant = f"constant{len(self.module._buffers)}"
            self.module.register_buffer(constant, self.of_network(self.values[name]))
            self.nodes[name] = self.graph.get_attr(constant)
            self.values[name] = self.values[name].to("meta")
        return self.nodes[name] if name else None

    def of_network(self, tensor):
        return tensor.to(self.dtype) if tensor.dtype in FLOATS else tensor

    def read(self, node):
        function, parameters = ALL[node.op_type]
        attributes = _attributes(node, self.opset, self.dtype)
        for i in parameters.intersection(range(len(node.input))):
            if not self.is_known(node.input[i]):
                raise Lacking(f"its {node.input[i]} depends on what the inputs hold")
        values = [None if name == "" else self.values[name] for name in node.input]
        values = [v.tolist() if i in parameters and v is not None else v for i, v in enumerate(values)]
        if node.op_type in KNOWING or all(self.is_known(name) for name in node.input):
            results, made = function(*values, **attributes), None
        else:
            metas = [self.of_network(v.to("meta")) if isinstance(v, torch.Tensor) else v for v in values]
            results = function(*metas, **attributes)
            given = tuple(v if i in parameters else self.seen(name) for i, (name, v) in enumerate(zip(node.input, values)))
            made = self.graph.call_function(function, given, attributes)
        several = isinstance(results, (tuple, list))
        if sum(map(bool, node.output)) > (len(results) if several else 1):
            raise Lacking("its further results")
        for i, (name, result) in enumerate(zip(node.output, results if several else [results])):
            self.values[name] = result
            if made is not None:
                self.nodes[name] = self.graph.call_function(operator.getitem, (made, i)) if several else made


def _join_silus(graph):
    """x · sigmoid(x), as exporters write it, is one function of PyTorch's."""
    for node in graph.nodes:
        if node.target is torch.mul:
            for x, gate in (node.args, node.args[::-1]):
                if getattr(gate, "target", None) is torch.sigmoid and gate.args == (x,):
                    with graph.inserting_before(node):
                        node.replace_all_uses_with(graph.call_function(F.silu, (x,)))
                    break
    graph.eliminate_dead_code()


def network(file, sizes, dtype=torch.float32):
    """A module of inputs of these sizes ({name: sizes}, in this order), whose results are a tuple in the file's order. Throws Lacking, with
    all operators that are not known."""
    model = onnx.load(file)
    reader = _Reader(model, sizes, dtype)
    _join_silus(reader.graph)
    module = torch.fx.GraphModule(reader.module, reader.graph)
    module.outputs = [output.name for output in model.graph.output]
    module.input_types = {i.name: _type(i.type.tensor_type.elem_type) for i in model.graph.input if i.name in sizes}
    return module.eval()
