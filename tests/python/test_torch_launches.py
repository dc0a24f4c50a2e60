"""Every launch of faltung.torch's own CUDA kernels gives them what they take, in their order: of the kernels' sources, without a GPU."""
import re
import types

import pytest

torch = pytest.importorskip("torch")

from faltung import _c  # noqa: E402
from faltung.torch import _average, _excite, _group_kernels, _norm_kernels  # noqa: E402

DTYPE, DEVICE = torch.bfloat16, torch.device("cpu")
SIZES = ("rows", "channels", "squeezed", "chunks", "chunk_rows", "across", "images", "groups", "slots")


def parameters(name):
    """[(type, name)] of a kernel."""
    sources = "".join((_norm_kernels._HERE / file).read_text() for file in _norm_kernels._NAMES)
    text = re.search(rf"__global__[^;{{]*?\b{name}\((.*?)\) {{", sources, re.S)[1]
    return [tuple(re.match(r"(?:const )?(.*?[ *]) ?(?:__restrict__ )?(\w+)$", one.strip()).groups()) for one in text.split(",")]


@pytest.fixture
def launched(monkeypatch):
    """Which kernels were launched; and the kernels, which are their names."""
    seen = []

    def launch(name, blocks_x, blocks_y, threads, stream, overlaps, *given):
        wanted = parameters(name)
        assert len(given) == len(wanted) and threads == 512 and stream == 77 and overlaps == 1, name
        for value, (kind, parameter) in zip(given, wanted):
            if "*" in kind:
                assert isinstance(value, (int, torch.Tensor)), (name, parameter)
            else:
                assert type(value) is {"Int": int, "double": float}[kind.strip()], (name, parameter)
        named = {parameter: value for value, (_, parameter) in zip(given, wanted)}
        seen.append((name, {size: named[size] for size in SIZES if size in named}))
    monkeypatch.setattr(_c, "launch", launch)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 77, raising=False)
    for module in (_norm_kernels, _group_kernels, _average):
        monkeypatch.setattr(module, "counters", lambda index, stream: torch.zeros(4096, dtype=torch.int32))
    made = types.SimpleNamespace(processors=4, overlaps=1)
    for name in sum(_norm_kernels._NAMES.values(), ()):
        setattr(made, name, name)
    return seen, made


def last(*shape):
    return torch.randn(shape).to(DTYPE).contiguous(memory_format=torch.channels_last)


def test_batch_norm(launched):
    seen, made = launched
    x, f32 = last(2, 24, 9, 9), torch.rand(24)
    launches = _norm_kernels.Launches(made, DEVICE, DTYPE, "silu", 162, 24)
    y, save = launches.forward(x, f32, f32, f32, f32, torch.zeros((), dtype=torch.int64), 0.1, 1e-5)
    launches.backward(y, x, save, f32)
    assert [name for name, _ in seen] == ["statistics", "normalize", "reduce", "apply"]
    assert all((sizes["rows"], sizes["channels"]) == (162, 24) for _, sizes in seen)


@pytest.mark.parametrize("is_last", [True, False])
def test_group_norm(launched, is_last):
    seen, made = launched
    x = last(2, 16, 8, 6) if is_last else torch.randn(2, 16, 8, 6).to(DTYPE)
    cut = _group_kernels.cut(x.shape, _group_kernels.rows_of(x), 4, made.processors)
    _group_kernels.Launches(made, DEVICE, DTYPE, "silu", tuple(x.shape), is_last, cut, 4)(x, torch.rand(16), None, 1e-5)
    kind = "row" if is_last else "plane"
    assert [name for name, _ in seen] == [f"{kind}_statistics", f"{kind}_normalize"]
    if is_last:
        assert all((sizes["rows"], sizes["channels"], sizes["images"]) == (48, 16, 2) for _, sizes in seen)


@pytest.mark.parametrize("has_bias", [True, False])
def test_squeeze_and_excite(launched, has_bias):
    seen, made = launched
    x, down, up = last(2, 16, 8, 6), last(4, 16, 1, 1), last(16, 4, 1, 1)
    biases = (down[:, 0, 0, 0], up[:, 0, 0, 0]) if has_bias else (None, None)
    _excite.launch(made, _excite.cut(x.shape, made.processors), x, down, biases[0], up, biases[1], "sigmoid", torch.empty_like(x))
    assert [name for name, _ in seen] == ["squeeze", "excite"]
    assert all((sizes["rows"], sizes["channels"], sizes["squeezed"]) == (48, 16, 4) for _, sizes in seen)


@pytest.mark.parametrize("shape", [(2, 16, 8, 6), (1, 16, 40, 33)])
def test_average(launched, shape):
    seen, made = launched
    x = last(*shape)
    how = _average.cut(x.shape, made.processors)
    _average.launch(made, how, x, _average.fake(x, False))
    (name, sizes), = seen
    assert name == "average" and (sizes["rows"], sizes["channels"]) == (shape[2] * shape[3], 16) and (sizes["chunks"] > 1) == (shape[0] == 1)
