"""patch(model, example): what is replaced, that results stay right in every mode, what is refused, and that undo is whole."""
import copy
import io
import os
import pickle

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

import faltung.torch as ft  # noqa: E402
from residual import ALWAYS, DEVICES, before_of, block, close  # noqa: E402


@pytest.mark.parametrize("device", DEVICES)
def test_layers_are_fused_where_nothing_else_reads(device):
    model, x = block(device)
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        rows = {row.name: row for row in patched.rows}
        assert {name: row.fused for name, row in rows.items()} == {
            "stem.0": "conv+bn+silu", "first": "conv+bn+relu", "second": "conv+add+relu"}
        assert all(row.kept and row.kernel and row.ms > 0 and row.torch_ms > 0 and row.error < 1e-5 for row in patched.rows)
        assert "stem.0" in str(patched) and "3 of 3" in str(patched)
        close(model(x), before)
        close(model(x[:1, :, :7]), before_of(model, patched, x[:1, :, :7]))
        patched.undo()
        assert torch.equal(model(x), before) and not any("forward" in m.__dict__ for m in model.modules())


def test_activations_in_place():
    """What reads the tensor after one reads what it left; what read it before keeps it from being fused."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
            self.norm, self.first, self.second, self.third = nn.BatchNorm2d(4), *(nn.ReLU(inplace=True) for _ in range(3))

        def forward(self, x):
            x = self.first(self.norm(self.a(x)))
            y = self.b(x)
            early = y.clone()
            y = self.second(y)
            return self.third(self.c(y)) + early + y + x
    torch.manual_seed(3)
    model, x = Model().eval(), torch.randn(1, 4, 9, 8)
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        assert {row.name: row.fused for row in patched.rows} == {"a": "conv+bn+relu", "b": "conv", "c": "conv+relu"}
        close(model(x), before)
    assert patched.difference < 1e-5 and "differs from PyTorch's" in patched.report()


@pytest.mark.parametrize("kind", [nn.ReLU, nn.SiLU])
def test_an_activation_that_layers_share(kind):
    """It is done once for each, whoever does it, in every mode."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
            self.act = kind()

        def forward(self, x):
            y = self.act(self.a(x))
            z = self.act(self.act(self.b(y)))
            return self.act(self.c(z) + y)
    torch.manual_seed(3)
    model, x = Model().eval(), torch.randn(1, 4, 9, 8)
    word = "relu" if kind is nn.ReLU else "silu"
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        assert {row.name: row.fused for row in patched.rows} == {"a": f"conv+{word}", "b": f"conv+{word}", "c": f"conv+add+{word}"}
        for _ in range(2):
            close(model(x), before)
        close(copy.deepcopy(model)(x), before)
        close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), before)
    close(model(x), before)  # with gradients
    patched.undo()
    assert torch.equal(model(x), before)


def test_what_overflows_is_said():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)).eval().bfloat16()
    with torch.no_grad():
        model[0].weight.fill_(1)
        model[1].weight.fill_(3e38)
        patched = ft.patch(model, torch.ones(1, 4, 9, 9, dtype=torch.bfloat16), **ALWAYS)
    assert patched.overflows_in == "1" and patched.difference is None and "not finite from 1 on" in patched.report()


@pytest.mark.parametrize("kinds", [(nn.Conv1d, nn.BatchNorm1d, 1), (nn.Conv3d, nn.BatchNorm3d, 3), (nn.ConvTranspose1d, nn.BatchNorm1d, 1),
                                   (nn.ConvTranspose2d, nn.BatchNorm2d, 2), (nn.ConvTranspose3d, nn.BatchNorm3d, 3)], ids=str)
def test_other_convolutions_are_fused(kinds):
    conv, norm, dimensions = kinds
    torch.manual_seed(4)
    model = nn.Sequential(conv(4, 8, 3, stride=2, padding=1), norm(8), nn.SiLU(), conv(8, 6, 2, groups=2), nn.ReLU())
    x = torch.randn(2, 4, *[7] * dimensions)
    model(x)  # moves the statistics
    model.eval()
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        assert [row.fused for row in patched.rows] == ["conv+bn+silu", "conv+relu"]
        close(model(x), before)
        if "Transpose" in conv.__name__:
            patched.undo()
            right = conv.forward(model[0], x, output_size=[14] * dimensions)
            ft.patch(model[:1], x, **ALWAYS)
            close(model[0](x, output_size=[14] * dimensions), right)


def test_weights_that_change_are_read_again():
    model, x = block()
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
        first = model(x)
        model.first.weight.mul_(2)
        model.norm.running_mean.add_(1)
        second = model(x)
        assert not torch.allclose(first, second)
        close(second, before_of(model, None, x))
        model.load_state_dict({k: v + 0.25 if v.is_floating_point() else v for k, v in model.state_dict().items()})
        close(model(x), before_of(model, None, x))


def _wider(conv):
    conv.padding, conv.dilation = (2, 2), (2, 2)


CHANGES = {
    "geometry": lambda model: (_wider(model.stem[0]), _wider(model.first)),
    "padding mode": lambda model: setattr(model.first, "padding_mode", "reflect"),
    "eps": lambda model: (setattr(model.stem[1], "eps", 1.0), setattr(model.norm, "eps", 1.0)),
    "no statistics": lambda model: (setattr(model.norm, "running_mean", None), setattr(model.norm, "running_var", None)),
    "parametrization": lambda model: torch.nn.utils.parametrizations.weight_norm(model.first),
    "weight norm": lambda model: torch.nn.utils.weight_norm(model.stem[0]),
    "pruning": lambda model: prune.l1_unstructured(model.second, "weight", 0.5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_modules_that_change_compute_their_own_part(change):
    model, x = block()
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
        model(x)
        CHANGES[change](model)
        close(model(x), before_of(model, None, x))


def test_an_activations_setting_changes():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LeakyReLU(0.1), nn.Conv2d(8, 8, 1), nn.GELU(), nn.Conv2d(8, 8, 1), nn.Hardtanh(-0.1, 0.2)).eval()
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
        close(model(x), before_of(model, None, x))
        model[1].negative_slope, model[3].approximate, model[5].max_val = 0.5, "tanh", 0.4
        close(model(x), before_of(model, None, x))


@pytest.mark.parametrize("name", ["stem.0", "stem.1", "stem.2", "first", "norm", "second", "relu"])
def test_hooks_that_come_later_see_what_their_module_computes(name):
    """Forward hooks, and those of gradients with respect to what comes in and goes out."""
    model, x = block()
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
        model(x)
    plain = copy.deepcopy(model)
    for module in plain.modules():
        module.__dict__.pop("forward", None)
    seen = {}
    for which in (model, plain):
        module, seen[which] = which.get_submodule(name), []
        module.register_forward_pre_hook(lambda module, given, seen=seen[which]: seen.append(given[0].detach().clone()))
        module.register_forward_hook(lambda module, given, y, seen=seen[which]: seen.append(y.detach().clone()))
        with torch.no_grad():
            seen[which].append(which(x))
        module.register_full_backward_hook(lambda module, given, taken, seen=seen[which]: seen.extend((given[0].clone(), taken[0].clone())))
        which(x.clone().requires_grad_()).sum().backward()
    assert len(seen[model]) == len(seen[plain]) > 4
    for ours, theirs in zip(seen[model], seen[plain]):
        close(ours, theirs)


def test_pickles_copies_state():
    model, x = block()
    names = list(model.state_dict())
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
        expected = model(x)
        assert list(model.state_dict()) == names
        assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)
        assert torch.equal(copy.deepcopy(model)(x), expected)
        memory = io.BytesIO()
        torch.save(model, memory)
        memory.seek(0)
        assert torch.equal(torch.load(memory, weights_only=False)(x), expected)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if torch.allclose(model(x), expected) else 1)
        assert os.waitpid(pid, 0)[1] == 0
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(model(x).float(), expected, rtol=0.1, atol=0.1)
    with torch.inference_mode():
        close(model(x), expected)
    double = model.double()
    assert double(x.double()).dtype == torch.float64


def test_what_is_refused_is_said_and_left_alone():
    class Reused(nn.Module):
        def __init__(self):
            super().__init__()
            self.reused, self.unused = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3)
            self.reflect = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
            self.hooked, self.normal = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)
            self.transposed = nn.ConvTranspose2d(3, 3, 3)
            self.lazy = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 1))
            self.norm, self.act = nn.BatchNorm2d(3), nn.ReLU()

        def forward(self, x):
            x = self.transposed(self.hooked(self.reflect(self.reused(self.reused(x)))))
            y = self.normal(self.lazy(x))
            return self.act(self.norm(y)) + y  # two readers of y

    torch.manual_seed(2)
    model, x = Reused().eval(), torch.randn(1, 3, 9, 9)
    model.hooked.register_forward_hook(lambda *_: None)
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        why = {row.name: row.why for row in patched.rows}
        assert "2 times" in why["reused"] and "did not run" in why["unused"] and "reflect" in why["reflect"]
        assert "hooks" in why["hooked"] and "parametriz" in why["lazy"].lower()
        assert [row.fused for row in patched.rows if row.kept] == ["conv", "conv"] and not why["normal"] and not why["transposed"]
        close(model(x), before)
        slow = ft.patch(block()[0], block()[1], at_least=1e9, min_time=1.0)
        assert not any(row.kept for row in slow.rows) and "speed" in slow.rows[0].why + slow.rows[1].why or "faster" in slow.report()
        model.double()
        assert all(row.why for row in ft.patch(model, x.double(), **ALWAYS).rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("training", [False, True])
def test_channels_last_by_patch(training, device):
    """The weights' order, and from the first convolution on that of all results; undone with the rest, to the bit."""
    model, x = block(device)
    model.train(training)
    state = copy.deepcopy(model.state_dict())
    with torch.set_grad_enabled(training):
        before = copy.deepcopy(model)(x)
        patched = ft.patch(model, x, memory_format=torch.channels_last, **ALWAYS)
        y = model(x)
        assert y.is_contiguous(memory_format=torch.channels_last) and ":nhwc" in patched.rows[0].problem
        close(y, before)
        assert all(torch.equal(a, b) for (name, a), b in zip(model.state_dict().items(), state.values()) if "running" not in name
                   and "batches" not in name)
        patched.undo()
        model.load_state_dict(state)
        assert {k: v.stride() for k, v in model.state_dict().items()} == {k: v.stride() for k, v in state.items()}
        assert torch.equal(model(x), before)
    for wrong, words in ((torch.contiguous_format, "memory_format"), ("nhwc", "memory_format")):
        with pytest.raises(ValueError, match=words):
            ft.patch(model, x, memory_format=wrong)


@torch.no_grad()
def test_a_model_that_needs_its_order_keeps_it():
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3)

        def forward(self, x):
            return self.conv(x).view(len(x), -1)
    model, x = Views(), torch.randn(2, 4, 9, 9)
    strides, before = model.conv.weight.stride(), model(x)
    with pytest.raises(RuntimeError, match="view"):
        ft.patch(model, x, memory_format=torch.channels_last, **ALWAYS)
    assert model.conv.weight.stride() == strides and torch.equal(model(x), before)


@torch.no_grad()
def test_patched_layers_refuse_and_pass_on_as_torchs():
    """Other devices, layouts, dtypes and sizes."""
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    model, x = copy.deepcopy(plain), torch.randn(2, 3, 8, 8)
    ft.patch(model, x, **ALWAYS)
    close(model(x), plain(x))
    for given in (x[:0], x[:1].expand(2, 3, 8, 8), x[..., ::2], x.transpose(2, 3)):
        close(model(given), plain(given))
    for given in (x.double(), x.cfloat(), x.int(), x.to_sparse(), x[:, :2], x[..., :2], torch.ones(1, 3, 0, 8)):
        with pytest.raises((RuntimeError, ValueError)):
            plain(given)
        with pytest.raises((RuntimeError, ValueError)):
            model(given)
    double = copy.deepcopy(model).double()
    close(double(x.double()), copy.deepcopy(plain).double()(x.double()))
    assert copy.deepcopy(model).to("meta")(x.to("meta")).shape == (2, 4, 6, 6)


def test_tied_weights():
    model = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)).eval()
    model[2].weight = model[0].weight
    x = torch.randn(1, 4, 8, 8)
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        assert all(row.kept for row in patched.rows)
        close(model(x), before)


@torch.no_grad()
def test_a_dropout_stays_before_the_activation():
    """Out of training it returns what it is given, and looks as if it were not there."""
    torch.manual_seed(3)
    model, x = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.Dropout(0.5), torch.nn.SiLU()).eval(), torch.randn(1, 3, 5, 4)
    patched = ft.patch(model, x, at_least=0.0, min_time=1.0)
    model.train()
    torch.manual_seed(4)
    ours = model(x)
    patched.undo()
    torch.manual_seed(4)
    torch.testing.assert_close(ours, model(x), rtol=1e-4, atol=1e-4)
