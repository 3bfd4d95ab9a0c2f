"""Perturbations in FP8: what is defined, computed example by example, and what it does to mean and variance."""

from collections.abc import Iterator

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor, nn

import flipout
from flipout.errors import InvalidArgument, Unsupported
from flipout.nn.held_weights import held_pass
from flipout.nn.parameters import Perturbations
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
    """Q, in double precision."""
    scale = x.abs().max().float() / 448
    return (x.float() * scale.reciprocal()).to(FP8).double() * scale.double()


def layer(fan_in: int, fan_out: int, scheme: flipout.Scheme | str = SCHEME, std: float = 0.1) -> flipout.nn.Linear:
    return flipout.nn.Linear(fan_in, fan_out, distribution=flipout.MeanField(std=std), scheme=scheme)


def parts(own: flipout.nn.Linear, examples: int) -> tuple[Tensor, Tensor, Tensor]:
    """ΔŴ, r and s of the held draw."""
    draw, keys = held_pass(own)
    draw.count(examples, "test")
    p = Perturbations(own, draw, keys, own.weight.dtype, own.flipout.scheme)["weight"]
    r, s = p.signs.over([(0, own.out_features), (1, own.in_features)], p.seed_of_signs(False), torch.float64)
    return p.delta().double(), r, s


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("count", "fan_in", "fan_out"), [(32, 48, 64), (5, 7, 3), (1, 16, 16), (160, 256, 144)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_output_and_gradients_are_those_of_a_loop_over_examples(
    device: str, count: int, fan_in: int, fan_out: int, dtype: torch.dtype
) -> None:
    own = layer(fan_in, fan_out).to(device, dtype)
    x = torch.randn(count, fan_in, device=device, dtype=dtype, requires_grad=True)
    slope = torch.randn(count, fan_out, device=device, dtype=dtype)
    with flipout.hold(own, 3):
        y = own(x)
        rho = dict(own.named_parameters())["weight_rho"]
        dx, dmean, drho = torch.autograd.grad(y, [x, own.weight, rho], slope)
        delta, r, s = (one.detach() for one in parts(own, count))
    exact, mean, noise = x.detach().double(), own.weight.detach().double(), rounded(delta.to(dtype))
    given, turned = rounded((exact * s).to(dtype)), rounded((slope.double() * r).to(dtype))
    plain = own.bias.detach().double() + exact @ mean.T
    expected = plain + torch.stack([r[n] * (noise @ given[n]) for n in range(count)])
    slopes = torch.stack([slope[n].double() @ mean + s[n] * (turned[n] @ noise) for n in range(count)])
    ddelta = torch.stack([torch.outer(turned[n], given[n]) for n in range(count)]).sum(0)
    spread = torch.nn.functional.softplus(rho.detach().double())
    of_rho = ddelta * delta / spread * torch.sigmoid(rho.detach().double())
    # Hopper adds up products of FP8 with some 14 bits, not 24 (DeepSeek-V3's report, arXiv:2412.19437, 3.3.2).
    room = {torch.float32: 2.0**-10 if device == "cuda" else 2.0**-18, torch.bfloat16: 2.0**-5}[dtype]
    for made, truth in ((y.detach(), expected), (dx, slopes), (dmean, slope.double().T @ exact), (drho, of_rho)):
        torch.testing.assert_close(made.double(), truth, rtol=room, atol=room * float(truth.abs().max()))


@pytest.mark.parametrize("device", DEVICES)
def test_a_mirrored_draw_has_the_negative_perturbation_to_the_bit(device: str) -> None:
    own = layer(64, 48).to(device)
    x = torch.randn(32, 64, device=device)
    with torch.no_grad():
        own.weight.zero_()
        own.bias.zero_()
        with flipout.hold(own, 1):
            straight = own(x)
        with flipout.hold(own, 1, antithetic=True):
            mirrored = own(x)
    assert straight.abs().max() > 0
    assert torch.equal(straight, -mirrored)


def test_mean_zero_and_nearly_the_same_variance() -> None:
    """Over 1,000 sign matrices of one ΔŴ: the mean within 4.5 standard errors of 0 at all 32 outputs (wrong once in
    4,600 seeds), and the variance within 2 % of that without FP8 under the same signs."""
    exact, own = layer(64, 8, "flipout"), layer(64, 8)
    own.load_state_dict(exact.state_dict())
    x = torch.randn(4, 64).repeat(1000, 1)
    made = {}
    with torch.no_grad():
        for name, model in (("exact", exact), ("fp8", own)):
            with flipout.hold(model, 5):
                plain = torch.nn.functional.linear(x, model.weight, model.bias)
                made[name] = (model(x) - plain).view(1000, 4, 8)
    mean, spread = made["fp8"].mean(0), made["fp8"].std(0)
    assert (mean.abs() <= 4.5 * spread / 1000**0.5).all()
    ratio = (made["fp8"].square().mean() / made["exact"].square().mean()).item()
    assert ratio == pytest.approx(1, abs=0.02)
    assert not torch.equal(made["fp8"], made["exact"])


def test_tokens_share_the_signs_of_their_example() -> None:
    own = layer(16, 8)
    x = torch.randn(3, 5, 16)
    with torch.no_grad(), flipout.hold(own, 2):
        y = own(x)
        delta, r, s = parts(own, 3)
        noise, given = rounded(delta.float()), rounded(x * s[:, None].float()).double()
        truth = x.double() @ own.weight.double().T + r[:, None] * (given @ noise.T) + own.bias.double()
    torch.testing.assert_close(y.double(), truth, rtol=1e-4, atol=1e-5)


def test_what_it_does_not_serve_is_computed_as_without_it() -> None:
    x = torch.randn(6, 3, 8, 8)
    plain, own = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
    own.load_state_dict(plain.state_dict())
    noise = flipout.Gaussian(0.1)
    flipout.perturb(plain, noise, scheme="flipout")
    flipout.perturb(own, noise, scheme=SCHEME)
    with torch.no_grad(), flipout.hold(plain, 1), flipout.hold(own, 1):
        assert torch.equal(plain(x), own(x))
        groups = [layer(16, 8, flipout.Flipout(group=2, perturbation_dtype=dtype)) for dtype in (FP8, None)]
        groups[1].load_state_dict(groups[0].state_dict())
        with flipout.hold(groups[0], 1), flipout.hold(groups[1], 1):
            given = torch.randn(6, 16)
            assert torch.equal(groups[0](given), groups[1](given))


def test_less_is_held_for_backward() -> None:
    held = {}
    for name, scheme in (("exact", "flipout"), ("fp8", SCHEME)):
        own, x, seen = layer(64, 64, scheme), torch.randn(8, 64, requires_grad=True), {}

        def keep(tensor: Tensor, seen=seen) -> Tensor:
            seen[tensor.data_ptr()] = tensor.numel() * tensor.itemsize
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            own(x)
        held[name] = sum(seen.values())
    assert held["fp8"] < held["exact"]


def test_zeros_stay_zeros() -> None:
    own = layer(16, 8)
    with torch.no_grad():
        assert torch.equal(own(torch.zeros(4, 16)), own.bias.expand(4, 8))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_an_empty_batch_and_numbers_that_are_not_finite(device: str, dtype: torch.dtype) -> None:
    own = layer(32, 16).to(device, dtype)
    assert own(torch.empty(0, 32, device=device, dtype=dtype)).shape == (0, 16)
    x = torch.randn(16, 32, device=device, dtype=dtype)
    with flipout.hold(own, 3), torch.no_grad():
        expected = own(x)
    x[5, 7], x[6, 1], x[7, 2] = torch.inf, torch.nan, -torch.inf
    with flipout.hold(own, 3), torch.no_grad():
        made = own(x)
    there = [0, 1, 2, 3, 4, *range(8, 16)]
    assert not made[5:8].isfinite().any()
    # One of the numbers that are gone may have been the largest.
    assert (made[there] - expected[there]).norm() < 0.1 * (expected[there] - own.eval()(x)[there]).norm()


def test_double_precision_has_its_own_range() -> None:
    own = layer(32, 16).double()
    x = torch.randn(16, 32, dtype=torch.float64)
    with flipout.hold(own, 3), torch.no_grad():
        noise = own(x) - own.eval()(x)
        for size in (1e200, 1e-200):
            found = own.train()(x * size) - own.eval()(x * size)
            torch.testing.assert_close(found / size, noise, rtol=1e-6, atol=1e-6)


def test_other_dtypes_and_second_derivatives_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"perturbation_dtype=torch\.float8_e5m2.*expected torch\.float8_e4m3fn"):
        flipout.Flipout(perturbation_dtype=torch.float8_e5m2)
    own, x = layer(16, 8), torch.randn(4, 16, requires_grad=True)
    with pytest.raises(Unsupported, match=r"FP8 has its backward pass written out.*Leave perturbation_dtype out"):
        torch.autograd.grad(own(x).square().sum(), x, create_graph=True)


def test_transforms_are_refused() -> None:
    """They would compute as without FP8."""
    own, x = layer(16, 8), torch.randn(4, 16)
    for transform in (torch.func.jacrev(own), torch.func.vmap(lambda x: own(x.unsqueeze(0)), randomness="same")):
        with pytest.raises(Unsupported, match=r"inside of torch\.func.*leave perturbation_dtype out"):
            transform(x)
    with flipout.hold(own, 1):
        with pytest.raises(Unsupported, match=r"inside of torch\.func"), torch.no_grad():
            torch.compile(own, backend="eager")(x)
        with pytest.raises(Unsupported, match=r"forward-mode"), fwAD.dual_level():
            own(fwAD.make_dual(x, x))


def test_a_part_of_a_batch_in_groups_is_as_exact_as_all_of_it() -> None:
    """A part that meets one group alone, too."""
    own, x = layer(16, 8, flipout.Flipout(group=2, perturbation_dtype=FP8)), torch.randn(6, 16)
    with torch.no_grad():
        with flipout.hold(own, 1):
            whole = own(x)
        for first in (0, 2, 4):
            with flipout.hold(own, 1, first=first):
                torch.testing.assert_close(own(x[first : first + 2]), whole[first : first + 2], rtol=1e-6, atol=1e-6)
