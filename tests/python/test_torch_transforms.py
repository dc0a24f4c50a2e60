"""A patched model under torch.func's transforms and PyTorch's tracers: it computes what it did before, or one line says what to do."""
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.func import functional_call, grad, jacrev, jvp, vmap  # noqa: E402

import faltung  # noqa: E402
import faltung.torch as ft  # noqa: E402


def shared_relu():
    relu = nn.ReLU()
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), relu, nn.Conv2d(8, 8, 3, padding=1), relu)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.conv = nn.Conv2d(3, 8, 3, padding=1, groups=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding="same")

    def forward(self, x):
        y = torch.relu(self.norm(self.stem(x)))
        return torch.relu(self.conv(y) + y)


@pytest.fixture(params=[shared_relu, Residual])
def models(request):
    """The same twice, the second patched, with its input."""
    x, made = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2)), []
    for _ in range(2):
        torch.manual_seed(1)
        made.append(request.param().eval())
    with torch.no_grad():
        assert all(row.kept for row in ft.patch(made[1], x, at_least=0.0, min_time=0.1).rows)
        made[1](x)
    return (*made, x)


def each_sample(model):
    def loss(parameters, x):
        return functional_call(model, parameters, (x,)).square().mean()
    return lambda x: vmap(grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), x[:, None])


TRANSFORMS = {
    "vmap": lambda model: lambda x: vmap(model)(torch.stack([x, 2 * x])),
    "grad": lambda model: grad(lambda x: model(x).square().mean()),
    "each sample's": each_sample,
    "jvp": lambda model: lambda x: jvp(model, (x,), (x.cos(),)),
    "jacrev": lambda model: jacrev(lambda x: model(x).flatten()[::97]),
    "dual numbers": lambda model: lambda x: forward_gradient(model, x),
    "trace": lambda model: lambda x: torch.jit.trace(model, x)(x + 1),
    "fx": lambda model: lambda x: torch.fx.symbolic_trace(model)(x),
    "make_fx": lambda model: lambda x: torch.fx.experimental.proxy_tensor.make_fx(model)(x)(x),
}


def forward_gradient(model, x):
    with torch.autograd.forward_ad.dual_level():
        return tuple(torch.autograd.forward_ad.unpack_dual(model(torch.autograd.forward_ad.make_dual(x, x.cos()))))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("with_gradients", [True, False])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms(models, transform, with_gradients):
    plain, patched, x = models
    with torch.set_grad_enabled(with_gradients):
        wanted, result = (transform(model)(x) for model in (plain, patched))
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(patched(x), plain(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_scripting_is_refused_in_words(models):
    for model in models[1], *models[1].children():
        if "forward" in model.__dict__:
            with pytest.raises(faltung.Unsupported, match=r"no patched model; script it before, or undo\(\)"):
                torch.jit.script(model)
            assert getattr(model.forward, "__globals__", None) is None


def test_training():
    """Batch norm of batches, whose statistics nothing moves."""
    def made():
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU(), nn.Conv2d(8, 4, 1))
    x, plain, patched = torch.randn(2, 3, 8, 8), made(), made()
    ft.patch(patched, x, at_least=0.0, min_time=0.1)
    torch.testing.assert_close(each_sample(patched)(x), each_sample(plain)(x), rtol=1e-4, atol=1e-5)
