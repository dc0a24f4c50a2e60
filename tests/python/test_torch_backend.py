"""The torch.compile backend, and patched models compiled."""
import contextlib
import copy
import importlib.metadata
import os
import threading
import types

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import faltung.torch as ft  # noqa: E402
from residual import ALWAYS, DEVICES, before_of, block, close, plans_made  # noqa: E402


def test_a_patched_model_is_compiled_whole():
    model, x = block()
    with torch.no_grad():
        before = model(x)
        ft.patch(model, x, **ALWAYS)
        close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), before)


def test_inductors_processes_start_before_layers_are_measured(monkeypatch):
    """Where Triton's kernels will be compiled, which is told here of tensors on the CPU."""
    from torch._inductor import async_compile, compile_fx
    told = []
    monkeypatch.setattr(async_compile, "maybe_warm_pool", lambda: told.append("processes"))
    monkeypatch.setattr(ft._backend, "replace", lambda *arguments, **keywords: told.append("layers"))
    monkeypatch.setattr(compile_fx, "compile_fx", lambda graph, *arguments, **keywords: graph.forward)
    for on_cuda in (False, True):
        monkeypatch.setattr(ft._backend, "_is_on_cuda", lambda inputs: on_cuda)
        torch._dynamo.reset()
        assert torch.compile(lambda x: x + 1, backend=ft.compile_graph)(torch.ones(3, requires_grad=True)).sum() == 6
    assert told == ["layers", "processes", "layers"]


@pytest.mark.parametrize("device", DEVICES)
def test_the_backend_fuses_and_keeps_gradients(device):
    """Without inductor's C++ compiler: the graph that it would get, run as it is."""
    graphs = []

    def look(graph, example_inputs):
        graphs.append(ft._backend.replace(graph, torch.is_grad_enabled()))
        return graph.forward
    model, x = block(device)
    with torch.no_grad():
        before = model(x)
        close(torch.compile(model, backend=look, fullgraph=True)(x), before)
    assert graphs == [(3, 3)]
    torch._dynamo.reset()
    plain = copy.deepcopy(model)
    torch.compile(model, backend=look, fullgraph=True)(x).square().sum().backward()
    plain(x).square().sum().backward()
    assert graphs[-1] == (3, 0)
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3)


def test_the_backend_leaves_what_it_does_not_know():
    def function(x, w, other):
        y = F.conv2d(x, w)
        other += y  # changes what came in
        z = F.conv2d(x, w)
        return torch.relu(z), z, F.conv2d(x.double(), w.double())

    counted = []

    def look(graph, example_inputs):
        counted.append(ft._backend.replace(graph, False))
        return graph.forward
    x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    first, second = torch.zeros(1, 3, 3, 3), torch.zeros(1, 3, 3, 3)
    with torch.no_grad():
        for a, b in zip(torch.compile(function, backend=look)(x, w, first), function(x, w, second)):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)
    assert counted == [(2, 0)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("padding", [[2, 1], [2, 2, 1, 1], [2, 1, 1, 1]], ids=str)
def test_passes_of_a_compiled_graph(padding, device, monkeypatch):
    """By PyTorch where that is faster, which is said of all here, to the same numbers; what PyTorch does not have stays."""
    from faltung.torch import _choice
    from torch.fx.experimental.proxy_tensor import make_fx
    ops, geometry = torch.ops.faltung, ([2, 1], padding, [1, 1], 2)
    generator = torch.Generator().manual_seed(8)
    x, w = (torch.randint(-2, 3, shape, generator=generator).float().to(device) for shape in ((2, 4, 9, 8), (6, 2, 3, 3)))
    dy = torch.ones_like(ops.conv2d(x, w, None, *geometry))

    def function(x, w, dy):
        return (ops.conv2d.default(x, w, None, *geometry), ops.conv2d_input_grad.default(dy, w, [2, 4, 9, 8], *geometry),
                ops.conv2d_weight_grad.default(dy, x, [6, 2, 3, 3], *geometry))
    graph = make_fx(function, tracing_mode="fake")(x, w, dy)
    monkeypatch.setattr(_choice, "_remembered", lambda key, measure, like: False)
    _choice.choose_passes(graph)
    is_torchs = padding != [2, 1, 1, 1]
    assert is_torchs != any("faltung" in str(node.target) for node in graph.graph.nodes)
    for a, right in zip(graph(x, w, dy), function(x, w, dy)):
        assert torch.equal(a, right)


def test_gradients_lie_as_their_input_does():
    """An average's gradient, spread over the pixels, lies in NCHW: so would all that is computed of it."""
    from faltung.torch import _backend
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table
    seen = []

    def look(graph, inputs):
        _backend.replace(graph, True)

        def compiled(inner, _):
            for node in inner.graph.nodes:
                if node.op == "call_function" and "_grad" in str(node.target):
                    seen.extend(t.meta["val"].is_contiguous(memory_format=torch.channels_last) for t in (*node.args[:2], node))
            return inner
        return aot_autograd(fw_compiler=compiled, bw_compiler=compiled, decompositions=select_decomp_table())(graph, inputs)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.SiLU(), torch.nn.Conv2d(8, 8, 3, groups=8), torch.nn.SiLU(), torch.nn.Conv2d(8, 6, 1), torch.nn.BatchNorm2d(6), torch.nn.SiLU())
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    for order, is_last in ((torch.channels_last, True), (torch.contiguous_format, False)):
        seen.clear()
        moved = copy.deepcopy(model).to(memory_format=order)
        given = x.detach().contiguous(memory_format=order).requires_grad_()
        torch._dynamo.reset()
        torch.compile(lambda x: moved(x).mean((2, 3)), backend=look, fullgraph=True)(given).square().sum().backward()
        wanted = torch.autograd.grad(copy.deepcopy(model)(x).mean((2, 3)).square().sum(), x)[0]
        close(given.grad, wanted)
        assert len(seen) == 18 and all(seen) == is_last


@torch.no_grad()
def test_what_is_faster_is_measured(monkeypatch):
    from faltung.torch import _choice
    from faltung._geometry import Family
    _choice._known.clear()
    x, w = torch.empty(1, 8, 20, 21), torch.empty(8, 8, 3, 3)
    question = Family(2, False), x, w, True, [[1, 1], [1, 1, 1, 1], [1, 1], 1], True, "relu", True
    ahead, later = plans_made(monkeypatch)
    _choice.plan_ahead([question], [])
    answer = _choice.is_faster_fused(*question)
    assert answer in (True, False) and list(_choice._known.values()) == [answer]
    assert (len(ahead), later) == (1, [])


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.parametrize("measures", [False, True])
def test_all_passes_plans_are_made_ahead(measures, of_input, autocast, monkeypatch):
    """The gradients' while the forward pass is compiled, unless inductor measures meanwhile; nothing is timed until they are made, and no
    thread is left behind."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor import compile_fx
    from faltung.torch import _choice, _run
    model, made, compiled_after, are_begun = block()[0].train(), [], [], threading.Event()
    plans_made(monkeypatch)
    plan_ahead, remembered = _run.plan_ahead, _choice._remembered

    def noted(device, wanted):
        if len(made) == 2:
            assert are_begun.wait(60)
        before = len(_run._plans)
        plan_ahead(device, wanted)
        made.append(len(_run._plans) - before)

    def inner(graph, inputs, **keywords):
        compiled_after.append(len(made))
        are_begun.set()
        return make_boxed_func(graph.forward)

    def remember(*arguments):
        assert len(made) in (2, 4)
        return remembered(*arguments)

    def compiled(graph, inputs, inner_compile, config_patches=None):
        return aot_autograd(fw_compiler=inner_compile, bw_compiler=inner_compile)(graph, inputs)
    monkeypatch.setattr(_run, "plan_ahead", noted)
    monkeypatch.setattr(_choice, "_remembered", remember)
    monkeypatch.setattr(compile_fx, "compile_fx_inner", inner)
    monkeypatch.setattr(compile_fx, "compile_fx", compiled)
    if measures:
        are_begun.set()
    torch._dynamo.reset()
    x = torch.randn(2, 3, 14, 9, requires_grad=of_input)
    with torch._inductor.config.patch(max_autotune=measures):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            compiled_model = torch.compile(model, fullgraph=True, backend=ft.compile_graph)
            y = compiled_model(x)
        y.float().sum().backward()
    for thread in threading.enumerate():
        if thread.name.startswith("faltung-ahead"):
            thread.join(10)
            assert not thread.is_alive()
    assert made == [3, 0, 5 + of_input, 0] and compiled_after == [3 if measures else 2, 4]


@pytest.mark.parametrize("ours,answer,searches", [(0.7, True, [False]), (0.9, True, [False, True]), (1.0, True, [False, True]), (1.1, False, [False])])
def test_cudnn_searches_where_that_may_matter(ours, answer, searches, monkeypatch):
    """And elsewhere leaves nothing behind that PyTorch would compute by later."""
    from faltung.torch import _choice
    seen, main = [], threading.get_ident()

    def measure():
        seen.append(torch.backends.cudnn.benchmark)
        assert not torch.is_grad_enabled() and seen[-1] == (threading.get_ident() == main)
        return ours, 1.0
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with torch.no_grad():
        assert _choice._is_less(measure, types.SimpleNamespace(is_cuda=True, device="cuda:0")) == answer
        assert seen == searches and torch.backends.cudnn.benchmark
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
        assert _choice._is_less(lambda: (ours, 1.0), types.SimpleNamespace(is_cuda=True)) == (ours <= 1)


@pytest.mark.parametrize("dtype,word", [(torch.float16, "biasf32"), (torch.bfloat16, "biasf32"), (torch.float32, "bias")], ids=str)
def test_a_gpu_is_asked_for_what_networks_ask_it_for(dtype, word, monkeypatch):
    """Their problems are those whose kernels are shipped: a bias that is made of constants is in f32 there."""
    from faltung.torch import _choice, _linear, _run
    from faltung._geometry import Family
    from torch._subclasses.fake_tensor import FakeTensorMode
    texts = []

    class Engine:
        def plan(self, text, *request):
            texts.append(text.split(":"))
    monkeypatch.setattr(_run, "_plans", {})
    monkeypatch.setattr(_run, "engine", Engine)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(_choice, "_plan_ahead", lambda wanted: [_run.plan_for(*make(*given, like)) for like, make, given in wanted])
    with FakeTensorMode():
        x, w = (torch.empty(shape, dtype=dtype, device="cuda").to(memory_format=torch.channels_last) for shape in ((2, 8, 9, 9), (16, 8, 3, 3)))
        _choice.plan_ahead([(Family(2, False), x, w, has_bias, [[1, 1], [1, 1, 1, 1], [1, 1], 1], True, "relu", True) for has_bias in (True, False)], [])
        _run.plan_for(*_linear.wanted(torch.Size((2, 8)), torch.Size((4, 8)), True, False, "gelu", x))
        _run.plan_for("fwd", Family(2, False), x.shape, w.shape, _run.geometry_of(Family(2, False), (3, 3)), x, True, True)
    assert [text[7:] for text in texts] == [["nhwc", word, "residual", "relu"], ["nhwc", "residual", "relu"], ["nhwc", word, "gelu"], ["nhwc", "bias"]]


class Runs:
    """In place of a compiled graph: which inputs it ran with."""

    def __init__(self):
        self.seen = []

    def __call__(self, *inputs):
        self.seen.append(inputs)
        return [inputs[0] + inputs[1]]


def recorded(moving):
    graph = torch.fx.Graph()
    graph.output([graph.placeholder("w"), graph.placeholder("x")])
    run, other = Runs(), Runs()
    return ft._backend._Recorded(torch.fx.GraphModule(torch.nn.Module(), graph), run, lambda inputs: other, moving), run, other


def test_a_recorded_graph_reads_its_inputs_where_they_lie():
    """In the first places; copies elsewhere, and where kernels could not read them."""
    most = ft._backend.MOST_PLACES
    apart, memory = 64, torch.zeros(100, most * 64)
    w, places = torch.ones(3), [memory[i, apart * i:apart * i + 3] for i in range(most)]
    call, run, other = recorded([1])
    for x in (memory[0, 1:4], *places, *places, memory[50, :3], memory[60, :3]):
        with torch.inference_mode(len(run.seen) == 0):
            assert torch.equal(call(w, x.fill_(len(run.seen)))[0], w + len(run.seen) - 1)
    read = [inputs[1].data_ptr() for inputs in run.seen]
    assert read[1:1 + 2 * most] == 2 * [x.data_ptr() for x in places]
    assert read[-1] == read[-2] == read[0] and read[0] not in [x.data_ptr() for x in places] and read[0] % 16 == 0
    assert all(inputs[0] is w for inputs in run.seen) and other.seen == []
    call, run, other = recorded([])
    for x in [memory[i, :3] for i in range(2 * most)]:
        call(w, x)
        assert run.seen[-1][1] is x


def test_which_inputs_move():
    from torch._subclasses.fake_tensor import FakeTensorMode
    graph = torch.fx.Graph()
    graph.placeholder("w").meta["tensor_dict"] = {"_dynamo_static_input_type": "guarded"}
    graph.output([graph.placeholder("x"), graph.placeholder("other")])
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    with FakeTensorMode():
        w, x, flat = torch.empty(3, device="cuda"), torch.empty(3, 2, device="cuda"), torch.empty(2, 1, device="cuda").expand(2, 3)
        for other, moving in ((x, [1, 2]), (flat, None), (torch.empty(3), None), (5, None)):
            assert ft._backend._moving(module, [w, x, other]) == moving


@pytest.mark.parametrize("function,is_in_place", [
    (lambda x: x * 2, True), (lambda x: (x * 2, x.size(0)), True), (lambda x: (x + 1, x[1:]), False), (lambda x: x.mul_(2) + 1, False)],
                         ids=["new", "number", "view", "changed"])
def test_which_graphs_read_their_inputs_in_place(function, is_in_place, monkeypatch):
    """Not those for which a copy would not do."""
    from torch._inductor import compile_fx
    seen = []

    def inner(graph, inputs, **keywords):
        seen.append(list(keywords["static_input_idxs"]))
        return graph.forward
    monkeypatch.setattr(compile_fx, "compile_fx_inner", inner)
    monkeypatch.setattr(ft._backend, "_moving", lambda graph, given: [0])
    torch._dynamo.reset()
    options = {"triton.cudagraphs": True}
    with torch.no_grad():
        torch.compile(function, backend=ft.compile_graph, options=options, fullgraph=True)(torch.ones(4, 4))
    assert seen[:1] == [[0] if is_in_place else []]


@pytest.mark.skipif(not (os.environ.get("FALTUNG_TEST_INDUCTOR") and torch.cuda.is_available()), reason="CUDA graphs, compiled by inductor")
def test_inputs_in_many_places():
    """As many graphs as there may be, and then copies: to the same numbers; and a result that is held is not changed unseen."""
    model, x = block("cuda")
    xs = [torch.randn_like(x) for _ in range(2 * ft._backend.MOST_PLACES)]
    with torch.no_grad():
        right = [model(x) for x in xs]
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend=backend())
        for _ in range(4):
            for x, y in zip(xs, right):
                close(compiled(x), y)
        xs[0].copy_(xs[-1])
        close(compiled(xs[0]), right[-1])


def backend():
    """By name where the package is installed, not only on the path."""
    installed = importlib.metadata.entry_points(group="torch_dynamo_backends", name="faltung")
    return "faltung" if installed else ft.compile_graph


@pytest.mark.skipif(not os.environ.get("FALTUNG_TEST_INDUCTOR"), reason="FALTUNG_TEST_INDUCTOR=1 compiles by inductor: a minute")
@pytest.mark.parametrize("device", DEVICES)
def test_inductor(device, monkeypatch):
    model, x = block(device)
    with torch.no_grad():
        before = model(x)
        compiled = torch.compile(model, fullgraph=True, backend=backend(), options={"triton.cudagraphs": True})
        for _ in range(3):
            close(compiled(x), before)
        model.first.weight.mul_(2)
        close(compiled(x), model(x))  # a graph that is replayed would not see that
    torch._dynamo.reset()
    plain = copy.deepcopy(model)
    torch.compile(model, fullgraph=True, backend=backend())(x).square().sum().backward()
    plain(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(not os.environ.get("FALTUNG_TEST_INDUCTOR"), reason="FALTUNG_TEST_INDUCTOR=1 compiles by inductor: a minute")
@pytest.mark.parametrize("device", DEVICES)
def test_a_patched_model_by_inductor(device):
    """Weights that change are read again there, too."""
    model, x = block(device)
    with torch.no_grad():
        patched = ft.patch(model, x, **ALWAYS)
        assert all(row.kept for row in patched.rows)
        compiled = torch.compile(model, fullgraph=True)
        close(compiled(x), before_of(model, None, x))
        model.first.weight.mul_(2)
        close(compiled(x), before_of(model, None, x))
