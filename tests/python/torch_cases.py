"""What the tests of torch.ops.faltung are given: inputs of small integers, and PyTorch's own functions."""
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from reference import shapes_of  # noqa: E402


def integers(seed, shape, dtype=torch.float32, device="cpu", format=torch.contiguous_format):
    """Small: every sum below is exact in the dtype of the accumulator, and rounded once. format: of two dimensions; of three the same
    order, of one there is no other."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-2, 3, shape, generator=generator).to(device, dtype)
    return values.contiguous(memory_format=format_of(values, format))


def format_of(tensor, format):
    if format is torch.contiguous_format or tensor.dim() < 4:
        return torch.contiguous_format
    return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d


def arguments(shape, dtype, device, format):
    x, w, _, geometry, _ = shapes_of(shape)
    return (integers(1, x, dtype, device, format), integers(2, w, dtype, device, format),
            integers(3, (shape[2],), dtype, device)), [list(g) if isinstance(g, tuple) else g for g in geometry]


def name_of(shape):
    return f"conv{'_transpose' * (len(shape) == 9)}{len(shape[1])}d"


def of_torch(shape, geometry):
    """PyTorch's own function of x, w, b; the operator's geometry, with the output's padding."""
    if len(shape) == 8:
        return lambda *t: getattr(F, name_of(shape))(*t, *geometry), geometry
    stride, padding, dilation, groups = geometry
    return (lambda *t: getattr(F, name_of(shape))(*t, stride, padding, shape[8], groups, dilation)), [*geometry, list(shape[8])]
