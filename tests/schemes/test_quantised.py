"""Perturbations in FP8: the definition, computed example by example, and the effect on mean and variance."""

from collections.abc import Iterator

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor, nn

import flipout
from flipout.errors import InvalidArgument, Unsupported
from flipout.nn.held_weights import held_pass
from flipout.nn.parameters import Perturbations
from flipout.schemes import SchemeName
from tests.poison import poisoned

FP8 = torch.float8_e4m3fn
SCHEME = flipout.Flipout(perturbation_dtype=FP8)
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]),
]


@pytest.fixture(autouse=True, scope="module")
def in_poisoned_memory() -> Iterator[None]:
    with poisoned():
        yield


def rounded(x: Tensor) -> Tensor:
    """Return Q(x), in double precision."""
    scale = x.abs().max().float() / 448
    return (x.float() * scale.reciprocal()).to(FP8).double() * scale.double()


def perturbed_linear(
    fan_in: int, fan_out: int, scheme: SchemeName | flipout.Scheme = SCHEME, std: float = 0.1
) -> flipout.nn.Linear:
    return flipout.nn.Linear(fan_in, fan_out, distribution=flipout.MeanField(std=std), scheme=scheme)


def parts(layer: flipout.nn.Linear, examples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return ΔŴ, r and s of the held draw."""
    draw, keys = held_pass(layer)
    draw.count(examples, "test")
    p = Perturbations(layer, draw, keys, layer.weight.dtype, layer.flipout.scheme)["weight"]
    r, s = p.signs.over([(0, layer.out_features), (1, layer.in_features)], p.seed_of_signs(False), torch.float64)
    return p.delta().double(), r, s


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("count", "fan_in", "fan_out"), [(32, 48, 64), (5, 7, 3), (1, 16, 16), (160, 256, 144)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_output_and_gradients_equal_those_of_a_loop_over_examples(
    device: str, count: int, fan_in: int, fan_out: int, dtype: torch.dtype
) -> None:
    layer = perturbed_linear(fan_in, fan_out).to(device, dtype)
    x = torch.randn(count, fan_in, device=device, dtype=dtype, requires_grad=True)
    grad = torch.randn(count, fan_out, device=device, dtype=dtype)
    with flipout.hold(layer, 3):
        y = layer(x)
        rho = dict(layer.named_parameters())["weight_rho"]
        dx, dmean, drho = torch.autograd.grad(y, [x, layer.weight, rho], grad)
        delta, r, s = (part.detach() for part in parts(layer, count))
    exact, mean, noise = x.detach().double(), layer.weight.detach().double(), rounded(delta.to(dtype))
    flipped_x, flipped_grad = rounded((exact * s).to(dtype)), rounded((grad.double() * r).to(dtype))
    plain = layer.bias.detach().double() + exact @ mean.T
    expected = plain + torch.stack([r[n] * (noise @ flipped_x[n]) for n in range(count)])
    expected_dx = torch.stack([grad[n].double() @ mean + s[n] * (flipped_grad[n] @ noise) for n in range(count)])
    ddelta = torch.stack([torch.outer(flipped_grad[n], flipped_x[n]) for n in range(count)]).sum(0)
    spread = torch.nn.functional.softplus(rho.detach().double())
    expected_drho = ddelta * delta / spread * torch.sigmoid(rho.detach().double())
    # Hopper accumulates FP8 products with about 14 bits, not 24 (DeepSeek-V3's report, arXiv:2412.19437, 3.3.2).
    tolerance = {torch.float32: 2.0**-10 if device == "cuda" else 2.0**-18, torch.bfloat16: 2.0**-5}[dtype]
    expected_dmean = grad.double().T @ exact
    for found, truth in ((y.detach(), expected), (dx, expected_dx), (dmean, expected_dmean), (drho, expected_drho)):
        torch.testing.assert_close(found.double(), truth, rtol=tolerance, atol=tolerance * float(truth.abs().max()))


@pytest.mark.parametrize("device", DEVICES)
def test_an_antithetic_draw_negates_the_perturbation_to_the_bit(device: str) -> None:
    layer = perturbed_linear(64, 48).to(device)
    x = torch.randn(32, 64, device=device)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
        with flipout.hold(layer, 1):
            plain = layer(x)
        with flipout.hold(layer, 1, antithetic=True):
            antithetic = layer(x)
    assert plain.abs().max() > 0
    assert torch.equal(plain, -antithetic)


def test_mean_zero_and_nearly_the_same_variance() -> None:
    """Over 1,000 sign matrices of one ΔŴ, the mean of all 32 outputs is within 4.5 standard errors of 0.

    By chance that fails for one seed in 4,600. The variance is within 2 % of the variance without FP8 under the same
    signs.
    """
    exact, layer = perturbed_linear(64, 8, "flipout"), perturbed_linear(64, 8)
    layer.load_state_dict(exact.state_dict())
    x = torch.randn(4, 64).repeat(1000, 1)
    noise = {}
    with torch.no_grad():
        for name, model in (("exact", exact), ("fp8", layer)):
            with flipout.hold(model, 5):
                plain = torch.nn.functional.linear(x, model.weight, model.bias)
                noise[name] = (model(x) - plain).view(1000, 4, 8)
    mean, spread = noise["fp8"].mean(0), noise["fp8"].std(0)
    assert (mean.abs() <= 4.5 * spread / 1000**0.5).all()
    ratio = (noise["fp8"].square().mean() / noise["exact"].square().mean()).item()
    assert ratio == pytest.approx(1, abs=0.02)
    assert not torch.equal(noise["fp8"], noise["exact"])


def test_tokens_share_the_signs_of_their_example() -> None:
    layer = perturbed_linear(16, 8)
    x = torch.randn(3, 5, 16)
    with torch.no_grad(), flipout.hold(layer, 2):
        y = layer(x)
        delta, r, s = parts(layer, 3)
        noise, flipped_x = rounded(delta.float()), rounded(x * s[:, None].float()).double()
        truth = x.double() @ layer.weight.double().T + r[:, None] * (flipped_x @ noise.T) + layer.bias.double()
    torch.testing.assert_close(y.double(), truth, rtol=1e-4, atol=1e-5)


def test_convolutions_and_groups_are_computed_as_without_fp8() -> None:
    x = torch.randn(6, 3, 8, 8)
    exact, quantised = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
    quantised.load_state_dict(exact.state_dict())
    noise = flipout.Gaussian(0.1)
    flipout.perturb(exact, noise, scheme="flipout")
    flipout.perturb(quantised, noise, scheme=SCHEME)
    with torch.no_grad(), flipout.hold(exact, 1), flipout.hold(quantised, 1):
        assert torch.equal(exact(x), quantised(x))
        groups = [perturbed_linear(16, 8, flipout.Flipout(group=2, perturbation_dtype=dtype)) for dtype in (FP8, None)]
        groups[1].load_state_dict(groups[0].state_dict())
        with flipout.hold(groups[0], 1), flipout.hold(groups[1], 1):
            x = torch.randn(6, 16)
            assert torch.equal(groups[0](x), groups[1](x))


def test_less_memory_is_kept_for_backward() -> None:
    held = {}
    for name, scheme in (("exact", flipout.Flipout()), ("fp8", SCHEME)):
        layer, x, seen = perturbed_linear(64, 64, scheme), torch.randn(8, 64, requires_grad=True), {}

        def keep(tensor: Tensor, seen=seen) -> Tensor:
            seen[tensor.data_ptr()] = tensor.numel() * tensor.itemsize
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            layer(x)
        held[name] = sum(seen.values())
    assert held["fp8"] < held["exact"]


def test_zeros_stay_zeros() -> None:
    layer = perturbed_linear(16, 8)
    with torch.no_grad():
        assert torch.equal(layer(torch.zeros(4, 16)), layer.bias.expand(4, 8))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_an_empty_batch_and_non_finite_numbers(device: str, dtype: torch.dtype) -> None:
    layer = perturbed_linear(32, 16).to(device, dtype)
    assert layer(torch.empty(0, 32, device=device, dtype=dtype)).shape == (0, 16)
    x = torch.randn(16, 32, device=device, dtype=dtype)
    with flipout.hold(layer, 3), torch.no_grad():
        expected = layer(x)
    x[5, 7], x[6, 1], x[7, 2] = torch.inf, torch.nan, -torch.inf
    with flipout.hold(layer, 3), torch.no_grad():
        y = layer(x)
    finite_rows = [0, 1, 2, 3, 4, *range(8, 16)]
    assert not y[5:8].isfinite().any()
    # A number that was overwritten may have been the largest, which sets the scale.
    noise = (expected - layer.eval()(x))[finite_rows]
    assert (y - expected)[finite_rows].norm() < 0.1 * noise.norm()


def test_double_precision_has_its_own_range() -> None:
    layer = perturbed_linear(32, 16).double()
    x = torch.randn(16, 32, dtype=torch.float64)
    with flipout.hold(layer, 3), torch.no_grad():
        noise = layer(x) - layer.eval()(x)
        for size in (1e200, 1e-200):
            found = layer.train()(x * size) - layer.eval()(x * size)
            torch.testing.assert_close(found / size, noise, rtol=1e-6, atol=1e-6)


def test_other_dtypes_and_second_derivatives_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"perturbation_dtype=torch\.float8_e5m2.*expected torch\.float8_e4m3fn"):
        flipout.Flipout(perturbation_dtype=torch.float8_e5m2)
    layer, x = perturbed_linear(16, 8), torch.randn(4, 16, requires_grad=True)
    with pytest.raises(Unsupported, match=r"FP8 has a hand-written backward pass.*Leave perturbation_dtype out"):
        torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)


def test_transforms_are_refused() -> None:
    """They would silently compute without FP8."""
    layer, x = perturbed_linear(16, 8), torch.randn(4, 16)
    for transform in (torch.func.jacrev(layer), torch.func.vmap(lambda x: layer(x.unsqueeze(0)), randomness="same")):
        with pytest.raises(Unsupported, match=r"inside torch\.func.*leave perturbation_dtype out"):
            transform(x)
    with flipout.hold(layer, 1):
        with pytest.raises(Unsupported, match=r"inside torch\.func"), torch.no_grad():
            torch.compile(layer, backend="eager")(x)
        with pytest.raises(Unsupported, match=r"forward-mode"), fwAD.dual_level():
            layer(fwAD.make_dual(x, x))


def test_a_part_of_a_batch_is_as_exact_as_the_whole_batch() -> None:
    """Also a part that contains only one group."""
    layer, x = perturbed_linear(16, 8, flipout.Flipout(group=2, perturbation_dtype=FP8)), torch.randn(6, 16)
    with torch.no_grad():
        with flipout.hold(layer, 1):
            whole = layer(x)
        for first in (0, 2, 4):
            with flipout.hold(layer, 1, first=first):
                torch.testing.assert_close(layer(x[first : first + 2]), whole[first : first + 2], rtol=1e-6, atol=1e-6)
