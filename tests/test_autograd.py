"""Second derivatives, the memory that autograd keeps, torch.func, and precisions."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacfwd, jacrev, stack_module_state, vmap

import flipout
from benchmarks.step import held_bytes
from flipout.schemes.flipout import SMALL
from tests.networks import TiedLM, convnet, encoder, mlp

SCHEMES = ["shared", "flipout", flipout.Flipout(group=2), "independent", "local_reparam"]
FIXED = [flipout.Gaussian(0.3), flipout.MultiplicativeGaussian(0.5), flipout.DropConnect(0.5), flipout.Rademacher(0.3)]
LEARNED = flipout.MeanField(std=0.3)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("distribution", [FIXED[0], FIXED[1], LEARNED])
def test_double_backward(scheme, distribution):
    layer = flipout.perturb(nn.Linear(3, 2).double(), distribution, scheme=scheme, where="*")
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)

    def call(x: Tensor, *parameters: Tensor) -> Tensor:
        names = [name for name, _ in layer.named_parameters()]
        with flipout.hold(layer, seed=1):
            return functional_call(layer, dict(zip(names, parameters, strict=True)), (x,)).sin()

    parameters = [p.detach().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(call, (x, *parameters))
    assert torch.autograd.gradgradcheck(call, (x, *parameters))


@pytest.mark.parametrize("scheme", ["flipout", flipout.Flipout(group=2), "independent"])
def test_double_backward_of_convolutions(scheme):
    layer = flipout.perturb(nn.Conv2d(2, 4, 3, groups=2, padding=1).double(), LEARNED, scheme=scheme)
    x = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    with flipout.hold(layer, seed=1):
        assert torch.autograd.gradgradcheck(lambda x, *_: layer(x).sin(), (x, *layer.parameters()), fast_mode=True)


def saved_tensors(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Return what autograd saves for backward, each storage once and without the Parameters."""
    storages = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    tensors: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in storages:
            storages.add(tensor.untyped_storage().data_ptr())
            tensors.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x).sum()
    return tensors


def saved_bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def test_benchmarks_count_all_saved_tensors():
    """Outputs that only autograd saves are counted too, although later outputs could reuse their memory."""
    x = torch.randn(64, 64, requires_grad=True)
    assert held_bytes(nn.Sequential(*(nn.Tanh() for _ in range(4))), x) == 4 * x.nbytes


@pytest.mark.parametrize("distribution", [*FIXED, LEARNED], ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("shape", [(SMALL // 64 + 1, 64), (SMALL // 256 + 1, 4, 64)])
def test_flipout_keeps_no_more_than_shared(distribution, shape):
    layer = flipout.perturb(nn.Linear(64, 96), distribution)
    x = torch.randn(shape, requires_grad=True)
    with flipout.using(layer, scheme="shared"):
        shared = saved_bytes(saved_tensors(layer, x))
    saved = saved_tensors(layer, x)
    assert saved_bytes(saved) <= 1.1 * shared
    rows = x.shape[:-1].numel()
    assert not any(tensor.numel() == rows * 96 for tensor in saved)
    assert sum(tensor.numel() == rows * 64 for tensor in saved) == 1


@pytest.mark.parametrize("distribution", [FIXED[0], LEARNED], ids=lambda d: type(d).__name__)
def test_flipout_of_a_convolution_keeps_no_more_than_shared(distribution):
    layer = flipout.perturb(nn.Conv2d(8, 12, 3, padding=1), distribution)
    rows = SMALL // 800 + 1
    x = torch.randn(rows, 8, 10, 10, requires_grad=True)
    with flipout.using(layer, scheme="shared"):
        shared = saved_bytes(saved_tensors(layer, x))
    saved = saved_tensors(layer, x)
    assert saved_bytes(saved) <= 1.1 * shared
    assert not any(tensor.numel() == rows * 12 * 100 for tensor in saved)


def loss_of(model: nn.Module, x: Tensor, **options):
    def loss(parameters: dict[str, Tensor]) -> Tensor:
        with flipout.hold(model, seed=3, **options):
            return functional_call(model, parameters, (x,)).square().sum()

    return loss


INPUTS = {
    mlp: lambda: torch.randn(4, 4),
    convnet: lambda: torch.randn(4, 2, 6, 6),
    encoder: lambda: torch.randn(4, 3, 8),
    TiedLM: lambda: torch.randint(7, (4, 3)),
}


@pytest.mark.parametrize("make", INPUTS)
@pytest.mark.parametrize("scheme", SCHEMES[:4])
def test_functional_call_and_grad_equal_backward(make, scheme):
    model = flipout.perturb(make(), LEARNED, scheme=scheme, where="*weight*").double()
    model.train()
    if make is convnet:
        model[1].eval()
    x = INPUTS[make]()
    x = x.double() if x.is_floating_point() else x
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    gradients = grad(loss_of(model, x))(parameters)
    loss_of(model, x)(dict(model.named_parameters())).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], torch.zeros_like(p) if p.grad is None else p.grad)


def test_functional_call_keeps_tied_weights_tied():
    model = flipout.perturb(TiedLM(), LEARNED, where="*.weight")
    x = torch.randint(7, (4, 3))
    other = {name: p.detach() + 1 for name, p in model.named_parameters()}
    with flipout.hold(model, seed=1):
        y = functional_call(model, other, (x,))
        model.load_state_dict({name: other[name.replace("decoder", "embedding")] for name in model.state_dict()})
        torch.testing.assert_close(y, model(x))


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_per_sample_gradients(randomness):
    model = flipout.perturb(mlp(), LEARNED)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x.unsqueeze(0),)).square().sum()

    x = torch.randn(1, 4).expand(5, 4)
    gradients = vmap(grad(loss), (None, 0), randomness=randomness)(parameters, x)
    assert gradients["0.weight"].shape == (5, 6, 4)
    assert torch.allclose(gradients["2.weight"][0], gradients["2.weight"][1]) == (randomness == "same")


def test_per_sample_gradients_under_hold_sum_to_the_gradient_of_the_batch():
    model = flipout.perturb(mlp(), LEARNED, scheme="shared")
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x = torch.randn(5, 4)
    per_sample = vmap(lambda p, x: grad(loss_of(model, x.unsqueeze(0)))(p), (None, 0))(parameters, x)
    expected = grad(loss_of(model, x))(parameters)
    torch.testing.assert_close({name: g.sum(0) for name, g in per_sample.items()}, expected)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_ensembles_of_stacked_parameters(scheme):
    models = [flipout.perturb(mlp(), LEARNED, scheme=scheme) for _ in range(3)]
    parameters, buffers = stack_module_state(models)  # pyright: ignore[reportArgumentType]
    x = torch.randn(4, 4)

    def call(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        with flipout.hold(models[0], seed=2):
            return functional_call(models[0], (parameters, buffers), (x,))

    outputs = vmap(call, (0, 0, None))(parameters, buffers, x)
    for model, y in zip(models, outputs, strict=True):
        with flipout.hold(model, seed=2):
            torch.testing.assert_close(model(x), y)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobians(scheme, jacobian):
    model = flipout.perturb(mlp().double(), LEARNED, scheme=scheme)
    x = torch.randn(3, 4, dtype=torch.float64)
    with flipout.hold(model, seed=2):
        derivatives = jacobian(model)(x)
        torch.testing.assert_close(derivatives, torch.autograd.functional.jacobian(model, x))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("distribution", [*FIXED, LEARNED], ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(scheme, distribution, dtype):
    if scheme == "local_reparam" and not distribution.gaussian:
        pytest.skip("never possible")
    model = flipout.perturb(mlp().to(dtype), distribution, scheme=scheme, where="*")
    x = torch.randn(5, 4, dtype=dtype, requires_grad=True)
    y = model(x)
    y.square().sum().backward()
    assert y.dtype == dtype
    assert all(p.grad is not None and p.grad.dtype == dtype and p.grad.isfinite().all() for p in model.parameters())
    with flipout.hold(model, seed=1):
        low = model(x).double()
    with flipout.hold(model.double(), seed=1):
        exact = model(x.detach().double())
    assert (low - exact).abs().max() <= 40 * torch.finfo(dtype).eps * exact.abs().max().clamp_min(1)


@pytest.mark.parametrize("scheme", SCHEMES[:4])
@pytest.mark.parametrize("make", [mlp, convnet, encoder])
def test_autocast(make, scheme):
    model = flipout.perturb(make(), LEARNED, scheme=scheme)
    x = INPUTS[make]().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = model(x)
    plain = make()
    with torch.autocast("cpu", torch.bfloat16):
        assert y.dtype == plain(x).dtype
    y.float().square().sum().backward()
    assert all(
        p.grad is None or (p.grad.dtype == torch.float32 and p.grad.isfinite().all()) for p in model.parameters()
    )
