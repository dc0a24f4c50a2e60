"""What one forward pass shows of a model: how often each convolution runs, on what, and which module alone reads its
result."""
import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ACTIVATION_MODULES = {
    torch.nn.ReLU: "relu", torch.nn.ReLU6: "relu6", torch.nn.Sigmoid: "sigmoid", torch.nn.SiLU: "silu",
    torch.nn.Hardswish: "hardswish", torch.nn.GELU: "gelu", torch.nn.LeakyReLU: "leaky_relu",
    torch.nn.Hardtanh: "clip",
}

CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d,
                torch.nn.ConvTranspose3d)
NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


def activation_name(module):
    """The problem's word for an activation module; None for any other."""
    name = ACTIVATION_MODULES.get(type(module))
    if name == "gelu" and module.approximate == "tanh":
        return "gelu_tanh"
    if name == "leaky_relu":
        return f"leaky_relu({module.negative_slope})"
    if name == "clip":
        bounds = module.min_val, module.max_val
        return "clip({},{})".format(*bounds) if all(map(math.isfinite, bounds)) else None
    return name


_ADDITIONS = (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor)


class _Readers(TorchDispatchMode):
    """Counts the operators that read each tensor; holds every tensor, so that an id names one of them."""

    def __init__(self):
        super().__init__()
        self.readers = {}
        self.alike = set()  # the ids of tensors that another of the same shape and dtype was added to
        self.held = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        flat = torch.utils._pytree.arg_tree_leaves(*arguments, **(keywords or {}))
        for tensor in {id(t): t for t in flat if isinstance(t, torch.Tensor)}.values():
            self.readers[id(tensor)] = self.readers.get(id(tensor), 0) + 1
        if function in _ADDITIONS and len(flat) > 1 and all(isinstance(t, torch.Tensor) for t in flat[:2]):
            if flat[0].shape == flat[1].shape and flat[0].dtype == flat[1].dtype:
                self.alike.update(map(id, flat[:2]))
        result = function(*arguments, **(keywords or {}))
        self.held.append((flat, result))
        return result


class Call:
    """One call of a module: its input, the ids of input and output, and how often the input was read before."""

    def __init__(self, x, y, reads):
        self.shape, self.strides, self.dtype, self.device = tuple(x.shape), x.stride(), x.dtype, x.device
        self.requires_grad = x.requires_grad
        self.input, self.output, self.reads = id(x), id(y), reads


def run(model, example):
    """The model's result; example: its input, or a tuple of them."""
    return model(*example) if isinstance(example, (tuple, list)) else model(example)


def fork_rng(*tensors):
    """Keeps the random state of the CPU and of the tensors' devices, and wakes no other."""
    return torch.random.fork_rng(devices={t.device.index for t in tensors if t.is_cuda})


def tensors_of(result):
    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]


class Observation:
    """calls: of each convolution, norm and activation, by module. sole_reader(module): the module that alone reads its
    one result, or None. results: the model's tensors. overflows_in: the name of the first module whose result is not finite, or
    None."""

    def __init__(self, model, example):
        self.calls, self.names, handles = {}, {}, []
        self._passed_on = set()  # the ids of results that another module returned as they were
        self._readings = []  # in the order of time
        kinds = (*CONVOLUTIONS, *NORMS, torch.nn.GroupNorm, *ACTIVATION_MODULES)
        for name, module in model.named_modules(remove_duplicate=True):
            if isinstance(module, kinds):
                self.names[module] = name
                self.calls[module] = []

        def note(module, arguments, result):
            if len(arguments) == 1 and isinstance(arguments[0], torch.Tensor) and isinstance(result, torch.Tensor):
                self.calls[module].append(Call(arguments[0], result, entered[module]))
                mode.held.append((arguments, result))
                made.append((module, result))
                self._readings.append((self.calls[module][-1], module))
            else:
                self.calls[module].append(None)

        def enter(module, arguments):
            if len(arguments) == 1:
                entered[module] = mode.readers.get(id(arguments[0]), 0)

        def look_through(module, arguments, result):
            if any(result is argument for argument in arguments):
                self._passed_on.add(id(result))

        mode, made, entered = _Readers(), [], {}
        for module in self.names:
            self.foreign_hooks = getattr(self, "foreign_hooks", set())
            if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
                self.foreign_hooks.add(module)
            handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(note)]
        # A dropout out of training, say, which in training is no longer nothing.
        handles += [m.register_forward_hook(look_through) for m in model.modules() if not isinstance(m, (*kinds, torch.nn.Identity))]
        try:
            with mode:
                result = run(model, example)
        finally:
            for handle in handles:
                handle.remove()
        self.results = tensors_of(result)
        self.overflows_in = next((self.names[m] for m, y in made if y.is_floating_point() and not y.isfinite().all()), None)
        self._readers, self._alike = mode.readers, mode.alike
        self._hold = mode.held  # until the ids have been compared

    def look_again(self, model, example):
        """Notes the strides that the convolutions' inputs have now, as other modules make them."""
        def note(module, arguments):
            calls = self.calls[module]
            if len(calls) == 1 and calls[0] is not None and len(arguments) == 1:
                calls[0].strides = arguments[0].stride()
        handles = [module.register_forward_pre_hook(note) for module in self.calls if isinstance(module, CONVOLUTIONS)]
        try:
            run(model, example)
        finally:
            for handle in handles:
                handle.remove()

    def sole_reader(self, module):
        """The module that alone reads the one result of this one, or None; it may run elsewhere, too."""
        calls = self.calls[module]
        if len(calls) != 1 or calls[0] is None or calls[0].input == calls[0].output:
            return None
        output = calls[0].output
        if output in self._passed_on:
            return None
        readings = [(call, reader) for call, reader in self._readings if call.input == output]
        if not readings or None in self.calls[readings[0][1]]:
            return None
        first, reader = readings[0]
        if first.output == output:  # in place: who reads later reads what it left
            return reader if first.reads == 0 else None
        alone = len(readings) == 1 and self._readers.get(output, 0) == 1 and not any(output == id(t) for t in self.results)
        return reader if alone else None

    def adds_alike(self, module):
        """Whether the module ran once, and a tensor of the same shape and dtype was added to its result."""
        calls = self.calls.get(module, ())
        return len(calls) == 1 and calls[0] is not None and calls[0].output in self._alike

    def is_shared(self, module):
        return len(self.calls[module]) != 1

    def forget(self):
        self._hold = None
