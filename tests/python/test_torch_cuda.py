"""What only a CUDA device shows: streams, captured graphs, PyTorch's allocator, arrays by DLPack."""
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
import torch.nn.functional as F  # noqa: E402

import faltung  # noqa: E402
import faltung.torch as ft  # noqa: E402

ops = torch.ops.faltung
PLAIN = ([1, 1], [1, 1], [1, 1], 1)


def inputs(n=2, c=16, k=32, size=20, dtype=torch.float16):
    generator = torch.Generator().manual_seed(n)
    x = torch.randint(-2, 3, (n, c, size, size), generator=generator).to("cuda", dtype)
    w = torch.randint(-2, 3, (k, c, 3, 3), generator=generator).to("cuda", dtype)
    return x, w


def right(x, w):
    return F.conv2d(x.double(), w.double(), padding=1).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_a_graph_is_captured_and_replayed(dtype, format):
    x, w = (t.contiguous(memory_format=format) for t in inputs(dtype=dtype))
    leaf = w.clone(memory_format=torch.preserve_format).requires_grad_()
    dy = torch.ones_like(ops.conv2d(x, w, None, *PLAIN))
    torch.autograd.grad(ops.conv2d(x, leaf, None, *PLAIN), leaf, dy)  # warm
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ops.conv2d(x, leaf, None, *PLAIN)
        dw, = torch.autograd.grad(y, leaf, dy)
    for step in range(3):
        x.copy_(torch.roll(x, 1, 0) * (1 if step else -1))
        graph.replay()
        assert torch.equal(y, right(x, w))
        expected = torch.autograd.grad(F.conv2d(x.double(), leaf.double(), padding=1), leaf, dy.double())[0]
        assert torch.equal(dw, expected.to(dtype))


def test_capture_without_warming_up_says_so():
    x, w = inputs(n=3, size=23)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="warm up"):
        with torch.cuda.graph(graph):
            ops.conv2d(x, w, None, *PLAIN)
    torch.cuda.synchronize()
    assert torch.equal(ops.conv2d(x, w, None, *PLAIN), right(x, w))


def test_the_current_stream_is_used():
    x, w = inputs(n=8, c=64, k=64, size=64)
    ops.conv2d(x, w, None, *PLAIN)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    results = []
    for i in range(20):  # what is written on the stream before is what is read
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            x.fill_(i % 3)
            results.append((ops.conv2d(x, w, None, *PLAIN).sum(dtype=torch.float64), i % 3))
            results[-1] += (faltung.conv2d(x, w, padding=1).sum(dtype=torch.float64),)
    torch.cuda.synchronize()
    one = right(torch.ones_like(x), w).sum(dtype=torch.float64)
    for by_op, value, by_array in results:
        assert by_op == by_array == one * value


def test_arrays_on_the_device():
    x, w = inputs()
    y = faltung.conv2d(x, w, padding=1)
    assert y.is_cuda and torch.equal(y, right(x, w))
    with pytest.raises(faltung.BadProblem, match="alike"):
        faltung.conv2d(x, w.cpu(), padding=1)
    plan = faltung.plan("fwd:n2c16h20w20k32r3s3:pad1:f16", "cuda:0")
    with pytest.raises(faltung.BadProblem, match="runs on cuda:0"):
        plan(x.cpu(), w)


def test_a_host_address_is_refused():
    """Where the host's memory is no device's: by the driver, of an address; by the array's own word, of an array."""
    x, w = inputs()
    y = torch.empty(2, 32, 20, 20, device="cuda", dtype=x.dtype)
    plan = faltung.plan("fwd:n2c16h20w20k32r3s3:pad1:f16", "cuda:0")
    plan(x, w, out=y)
    assert torch.equal(y, right(x, w))
    with pytest.raises(faltung.BadProblem, match="runs on cuda:0"):
        plan(x, w, out=y.cpu())
    with pytest.raises(faltung.BadProblem, match="runs on cuda:0"):
        plan(x.cpu().pin_memory(), w, out=y)
    device = next(device for device in faltung.devices() if device.id == "cuda:0")
    if "pageable_memory_access" not in device.features:
        with pytest.raises(faltung.BadProblem, match="the pointer is no memory that cuda:0 can use"):
            plan.run(x.cpu().data_ptr(), w.data_ptr(), y.data_ptr(), None, None, None, None)
    assert torch.equal(plan(x, w, out=torch.zeros_like(y)), y)


def test_the_compiled_graph_is_a_cuda_graph():
    """Weights are packed outside of its memory, and read again when they change."""
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 64, 3, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
                                torch.nn.MaxPool2d(2), torch.nn.Conv2d(64, 64, 3, padding=1)).cuda().half().eval()
    x = torch.randn(4, 16, 32, 32, device="cuda", dtype=torch.half)
    with torch.no_grad():
        before = model(x)
        compiled = torch.compile(model, backend="faltung" if "faltung" in torch._dynamo.list_backends() else ft.compile_graph)
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(compiled(x), before, rtol=2e-2, atol=2e-2)
        from torch._inductor.cudagraph_trees import get_container
        assert get_container(torch.cuda.current_device()).tree_manager is not None
        for weight in (model[0].weight, model[4].weight):
            weight.mul_(2)
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(compiled(x), model(x), rtol=2e-2, atol=4e-2)


def test_memory_stays_level_over_many_shapes():
    def some():
        for size in range(8, 40):
            x, w = inputs(size=size)
            ops.conv2d(x, w, None, *PLAIN)
    some()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(4):
        some()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_f32_follows_torchs_setting():
    generator = torch.Generator("cuda").manual_seed(1)
    x = torch.rand(2, 64, 32, 32, device="cuda", generator=generator)
    w = torch.rand(64, 64, 3, 3, device="cuda", generator=generator)
    expected, errors, before = F.conv2d(x.double(), w.double(), padding=1), {}, torch.backends.cudnn.allow_tf32
    try:
        for allowed in (False, True):
            torch.backends.cudnn.allow_tf32 = allowed
            errors[allowed] = ((ops.conv2d(x, w, None, *PLAIN) - expected) / expected).abs().max().item()
    finally:
        torch.backends.cudnn.allow_tf32 = before
    assert errors[False] < 1e-5 and errors[True] < 1e-2


def test_patch_on_the_device():
    model = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU()).cuda().half().eval()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(8, 64, 56, 56, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, at_least=0)
        print(patched.report())
        torch.testing.assert_close(model(x), before, rtol=1e-2, atol=1e-2)
        graph = torch.cuda.CUDAGraph()
        model(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = model(x)
        graph.replay()
        assert torch.equal(y, model(x))
        patched.undo()
        assert torch.equal(model(x), before)


def test_a_step_in_training_is_captured():
    """A patched model's forward and backward pass in a CUDA graph, whose gradients are those of the step as it runs."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 64, 3, padding=1, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
                                torch.nn.Conv2d(64, 32, 1)).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(8, 16, 28, 28, device="cuda").to(memory_format=torch.channels_last)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            y = model(x)
        y.float().square().mean().backward()

    def gradients():
        return [parameter.grad.clone() for parameter in model.parameters()]
    with torch.autocast("cuda", torch.bfloat16):
        patched = ft.patch(model, x, at_least=0)
    assert all(row.kept for row in patched.rows), patched.report()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
        expected = gradients()
        model.zero_grad()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    captured = [parameter.grad for parameter in model.parameters()]  # which every replay writes
    for _ in range(2):
        for gradient in captured:
            gradient.zero_()
        graph.replay()
        for ours, right in zip(captured, expected):
            torch.testing.assert_close(ours, right, rtol=1e-2, atol=1e-2 * right.abs().max().item())
