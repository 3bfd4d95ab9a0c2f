"""Batched gradients and forward-mode derivatives equal those of a loop, under every scheme."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor, nn
from torch._vmap_internals import _vmap
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call, jacfwd, jacrev, jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

import flipout

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own attention under vmap
SCHEMES = ["shared", "flipout", flipout.Flipout(group=2), flipout.Flipout(reuse_signs=True), "independent", "low_rank"]
SCHEMES += ["rank_one"]
FP8 = flipout.Flipout(perturbation_dtype=torch.float8_e4m3fn)
LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Linear(3, 2), lambda: torch.randn(4, 3)),
    "tokens": (lambda: nn.Linear(3, 2), lambda: torch.randn(4, 5, 3)),
    "conv": (lambda: nn.Conv2d(2, 4, 2, groups=2), lambda: torch.randn(4, 2, 3, 3)),
    "transposed": (lambda: nn.ConvTranspose1d(2, 3, 2), lambda: torch.randn(4, 2, 3)),
    "embedding": (lambda: nn.Embedding(5, 3), lambda: torch.randint(5, (4, 2))),
    "lstm": (lambda: nn.LSTM(3, 2, 2, batch_first=True), lambda: torch.randn(4, 3, 3)),
    "gru": (lambda: nn.GRU(3, 2, batch_first=True, bidirectional=True), lambda: torch.randn(4, 3, 3)),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 3, 0.0, batch_first=True), lambda: torch.randn(4, 3, 4)),
}


def noise_of(scheme: Any) -> flipout.Distribution:
    return flipout.Gaussian(0.3) if scheme in ("low_rank", "rank_one") else flipout.MeanField(std=0.3)


def build(layer: str, scheme: Any, dtype: torch.dtype = torch.float64) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    make, inputs = LAYERS[layer]
    module, x = make(), inputs()
    x = x.to(dtype) if x.is_floating_point() else x
    return flipout.perturb(module.to(dtype), noise_of(scheme), scheme=scheme, where="*"), x


def held_output(model: nn.Module, x: Tensor) -> Tensor:
    with flipout.hold(model, seed=1):
        y = model(x)
    return y[0] if isinstance(y, tuple) else y


def assert_batched_equals_looped(model: nn.Module, x: Tensor, ways: tuple[str, ...], count: int = 3) -> None:
    leaves = [*model.parameters(), *([x.requires_grad_()] if x.is_floating_point() else [])]
    y = held_output(model, x)
    upstream = torch.randn(count, *y.shape, dtype=y.dtype)

    def single(grad: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(y, leaves, grad, retain_graph=True)

    looped = [torch.stack(parts) for parts in zip(*map(single, upstream), strict=True)]
    for way in ways:
        if way == "grad":
            found = torch.autograd.grad(y, leaves, upstream, retain_graph=True, is_grads_batched=True)
        else:
            found = vmap(single)(upstream)
        torch.testing.assert_close(list(found), looped, rtol=0, atol=1e-10 if y.dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_batched_gradients_equal_a_loop(layer: str, scheme: Any) -> None:
    assert_batched_equals_looped(*build(layer, scheme), ("grad", "vmap"))


@pytest.mark.parametrize("layer", ["linear", "lstm", "gru", "encoder"])
@pytest.mark.parametrize("scheme", ["flipout", FP8], ids=str)
def test_batched_gradients_of_handwritten_backward_passes(layer: str, scheme: Any) -> None:
    """An LSTM in single precision, and FP8, which has a scale for each gradient."""
    assert_batched_equals_looped(*build(layer, scheme, torch.float32), ("grad", "vmap"))


def test_batches_of_batches() -> None:
    model, x = build("linear", "flipout")
    y = held_output(model, x.requires_grad_())
    upstream = torch.randn(2, 3, *y.shape, dtype=y.dtype)

    def single(grad: Tensor) -> Tensor:
        return torch.autograd.grad(y, x, grad, retain_graph=True)[0]

    def batched(grads: Tensor) -> Tensor:
        return torch.autograd.grad(y, x, grads, retain_graph=True, is_grads_batched=True)[0]

    looped = torch.stack([torch.stack([single(grad) for grad in part]) for part in upstream])
    torch.testing.assert_close(vmap(vmap(single))(upstream), looped, rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.stack([batched(part) for part in upstream]), looped, rtol=0, atol=1e-10)
    torch.testing.assert_close(_vmap(batched)(upstream), looped, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scheme", [*SCHEMES, "local_reparam"], ids=str)
def test_all_ways_to_a_jacobian_or_hessian_agree(scheme: Any) -> None:
    noise = noise_of(scheme)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model, x = flipout.perturb(net, noise, scheme=scheme, where="*"), torch.randn(4, 3, dtype=torch.float64)

    def total(x: Tensor) -> Tensor:
        return held_output(model, x).square().sum()

    def call(x: Tensor) -> Tensor:
        return held_output(model, x)

    looped = jacobian(call, x)
    ways = [
        jacobian(call, x, vectorize=True),
        jacobian(call, x, vectorize=True, strategy="forward-mode"),
        jacrev(call)(x),
        jacfwd(call)(x),
    ]
    for found in ways:
        torch.testing.assert_close(found, looped, rtol=0, atol=1e-10)
    torch.testing.assert_close(hessian(total, x, vectorize=True), hessian(total, x), rtol=0, atol=1e-10)
    torch.testing.assert_close(jacfwd(jacrev(total))(x), hessian(total, x), rtol=0, atol=1e-10)
    leaf = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        call, (leaf,), check_batched_grad=True, check_forward_ad=True, check_batched_forward_grad=True
    )
    assert torch.autograd.gradgradcheck(call, (leaf,), check_batched_grad=True)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("layer", [name for name in LAYERS if name != "embedding"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_forward_mode_equals_the_jvp(layer: str, scheme: Any, dtype: torch.dtype) -> None:
    """In the direction of x and of the Parameters."""
    model, x = build(layer, scheme, dtype)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    tangents = {name: torch.randn_like(p) for name, p in parameters.items()}
    along = torch.randn_like(x)

    def call(x: Tensor, parameters: dict[str, Tensor]) -> Tensor:
        # torch's fused attention has no forward mode.
        with flipout.hold(model, seed=1), sdpa_kernel(SDPBackend.MATH):
            y = functional_call(model, parameters, (x,))
        return y[0] if isinstance(y, tuple) else y

    expected = jvp(call, (x, parameters), (along, tangents))[1]
    with fwAD.dual_level():
        duals = {name: fwAD.make_dual(p, tangents[name]) for name, p in parameters.items()}
        found = fwAD.unpack_dual(call(fwAD.make_dual(x, along), duals)).tangent
    rounding = 1e-7 if dtype == torch.float64 else 1e-4  # the two computations round differently
    torch.testing.assert_close(found, expected, rtol=rounding, atol=rounding)
    small = 1e-6
    if dtype == torch.float64:
        ends = [
            call(x + step * along, {name: p + step * tangents[name] for name, p in parameters.items()})
            for step in (small, -small)
        ]
        torch.testing.assert_close(found, (ends[0] - ends[1]) / (2 * small), rtol=1e-6, atol=1e-8)
