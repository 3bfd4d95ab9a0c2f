"""ΔW_n = ΔŴ ∘ r_n s_nᵀ: the sign matrix, which examples share a base, and what a new draw changes."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.errors import AsymmetricDistribution, InvalidArgument
from tests import many_draws
from tests.statistics import assert_probability, assert_uncorrelated

NOISE = flipout.Gaussian(0.5)


def with_zero_mean(layer: nn.Module) -> nn.Module:
    """Set the means to 0, so that the weights equal the perturbation to the last bit."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer.double()


def ratios(layer: nn.Module, x: Tensor) -> Tensor:
    """Return ΔW_n / ΔŴ for each example. ΔŴ is what the scheme `shared` sees in the same draw."""
    seed = many_draws.seeds(1, first=3)
    flipped = many_draws.weights(layer, x, seed)[0]
    with flipout.using(layer, scheme="shared"):
        base = many_draws.weights(layer, x, seed)[0]
    assert torch.all(base != 0)
    return flipped / base


def assert_rank_one_signs(matrix: Tensor) -> None:
    """Each matrix of (…, d0, d1) is r sᵀ with entries ±1."""
    assert torch.all(matrix.abs() == 1)
    outer = matrix[..., :, :1] * matrix[..., :1, :] * matrix[..., :1, :1]
    assert torch.equal(matrix, outer)


def test_the_sign_matrix_of_a_linear_layer_has_rank_one() -> None:
    layer = with_zero_mean(flipout.nn.Linear(7, 6, distribution=NOISE))
    found = ratios(layer, torch.zeros(20, 7, dtype=torch.float64))
    assert_rank_one_signs(found)
    assert len(found.flatten(1).unique(dim=0)) == 20
    assert_probability(int((found[:, 0] > 0).sum()), found[:, 0].numel(), 0.5)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("kind", [flipout.nn.Conv2d, flipout.nn.ConvTranspose2d])
def test_the_sign_matrix_of_a_convolution_has_rank_one_within_each_group(kind, groups: int) -> None:
    layer = with_zero_mean(kind(8, 12, 3, groups=groups, distribution=NOISE))
    found = ratios(layer, torch.zeros(6, 8, 3, 3, dtype=torch.float64))
    assert torch.equal(found, found[..., :1, :1].expand_as(found))  # one sign for all positions of a kernel
    by_group = found[..., 0, 0].unflatten(1, (groups, -1))
    assert_rank_one_signs(by_group)
    if groups > 1:
        assert not torch.equal(by_group[:, 0], by_group[:, 1])


def test_two_tokens_of_one_example_see_the_same_weights() -> None:
    layer = flipout.nn.Linear(5, 4, distribution=NOISE).double()
    y = layer(torch.randn(3, 1, 5, dtype=torch.float64).expand(3, 6, 5))
    torch.testing.assert_close(y, y[:, :1].expand_as(y), rtol=1e-12, atol=0)
    assert not torch.allclose(y[0], y[1])


def test_two_lookups_of_one_example_see_the_same_row() -> None:
    layer = flipout.nn.Embedding(9, 4, distribution=NOISE, where="weight")
    y = layer(torch.tensor([[2, 7, 2], [2, 2, 7]]))
    assert torch.equal(y[0, 0], y[0, 2])
    assert torch.equal(y[1, 0], y[1, 1])
    assert not torch.equal(y[0, 0], y[1, 0])


@pytest.mark.parametrize("kind", [flipout.nn.Conv2d, flipout.nn.ConvTranspose2d])
def test_two_pixels_of_one_example_see_the_same_kernel(kind) -> None:
    layer = kind(3, 2, 3, padding=1, padding_mode="zeros", distribution=NOISE).double()
    x = torch.zeros(4, 3, 9, 9, dtype=torch.float64)
    x[:, :, 2, 2] = x[:, :, 6, 6] = torch.randn(4, 3, dtype=torch.float64)
    y = layer(x)
    torch.testing.assert_close(y[:, :, 1:4, 1:4], y[:, :, 5:8, 5:8], rtol=1e-12, atol=0)


def test_a_new_draw_changes_base_and_signs_unless_the_signs_are_reused() -> None:
    x = torch.zeros(2, 6, dtype=torch.float64)
    signs = {}
    for reuse in (False, True):
        layer = with_zero_mean(flipout.nn.Linear(6, 5, distribution=NOISE, scheme=flipout.Flipout(reuse_signs=reuse)))
        seen = many_draws.weights(layer, x, many_draws.seeds(2))
        assert not torch.equal(seen[0].abs(), seen[1].abs())
        relative = [each[0] * each[1] > 0 for each in seen]  # signs of one example relative to the other: ΔŴ cancels
        signs[reuse] = torch.equal(relative[0], relative[1])
    assert signs == {False: False, True: True}


def test_parameters_have_separate_noise_and_signs() -> None:
    parts = [nn.Linear(3, 3), nn.Linear(3, 3)]
    model = flipout.perturb(with_zero_mean(nn.Sequential(*parts)), NOISE, where="*")
    x = torch.zeros(2, 3, dtype=torch.float64)

    def under(seed: Tensor) -> list[Tensor]:
        with flipout.hold(model, seed=seed):
            model(x)
            return [flipout.example_weights(part)[name].flatten(1) for part in parts for name in ("weight", "bias")]

    seen = torch.func.vmap(under)(many_draws.seeds(4000))
    sizes = [each[:, 0].abs() for each in seen]
    flips = [each.prod(1).sign() for each in seen]  # signs of one example relative to the other: ΔŴ cancels
    for i in range(4):
        for j in range(i):
            assert_uncorrelated(sizes[i], sizes[j])
            assert_uncorrelated(flips[i], flips[j])


def test_another_sign_seed_keeps_the_base() -> None:
    layer = with_zero_mean(flipout.nn.Linear(6, 5, distribution=NOISE))
    x = torch.zeros(2, 6, dtype=torch.float64)
    seen = [many_draws.weights(layer, x, many_draws.seeds(1), sign_seed=seed) for seed in (1, 2)]
    assert torch.equal(seen[0].abs(), seen[1].abs())
    assert not torch.equal(seen[0], seen[1])


def test_antithetic_draws_average_to_the_mean() -> None:
    for layer, x in (
        (flipout.nn.Linear(3, 4, distribution=NOISE, where="*"), torch.randn(5, 3)),
        (flipout.nn.Conv1d(4, 6, 2, groups=2, distribution=NOISE, where="*"), torch.randn(5, 4, 6)),
        (flipout.nn.ConvTranspose1d(4, 6, 2, groups=2, distribution=NOISE, where="*"), torch.randn(5, 4, 6)),
        (flipout.nn.Embedding(9, 4, distribution=NOISE, where="*"), torch.tensor([1, 2, 3])),
    ):
        layer.double()
        x = x.double() if x.is_floating_point() else x
        both = []
        for antithetic in (False, True):
            with flipout.hold(layer, seed=1, antithetic=antithetic):
                both.append(layer(x))
        torch.testing.assert_close(both[0] + both[1], 2 * layer.eval()(x))
        assert not torch.allclose(both[0], both[1])


def test_only_examples_of_one_group_share_a_base() -> None:
    layer = with_zero_mean(flipout.nn.Linear(4, 3, distribution=NOISE, scheme=flipout.Flipout(group=2)))
    seen = many_draws.weights(layer, torch.zeros(5, 4, dtype=torch.float64), many_draws.seeds(3000)).flatten(2)
    size = seen.abs()
    assert torch.equal(size[:, 0], size[:, 1])
    assert torch.equal(size[:, 2], size[:, 3])
    for a, b in ((0, 2), (0, 4), (2, 4)):
        assert_uncorrelated(size[:, a], size[:, b])
    for a, b in ((0, 1), (0, 2), (2, 3)):
        assert_uncorrelated(seen[:, a], seen[:, b])


def test_groups_of_one_use_the_bases_of_independent() -> None:
    layer = with_zero_mean(flipout.nn.Linear(4, 3, distribution=NOISE, scheme=flipout.Flipout(group=1)))
    x = torch.zeros(5, 4, dtype=torch.float64)
    flipped = many_draws.weights(layer, x, many_draws.seeds(10))
    with flipout.using(layer, scheme="independent"):
        assert torch.equal(flipped.abs(), many_draws.weights(layer, x, many_draws.seeds(10)).abs())


@pytest.mark.parametrize("p", [0.1, 0.49, 0.9])
def test_an_asymmetric_distribution_is_refused(p: float) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(AsymmetricDistribution, match="shared"):
        flipout.perturb(model, flipout.DropConnect(p))
    assert type(model[0]) is nn.Linear
    with pytest.raises(AsymmetricDistribution, match="never"):
        flipout.nn.Linear(3, 3, distribution=flipout.DropConnect(p))
    flipout.perturb(model, flipout.DropConnect(p), scheme="independent")
    with pytest.raises(AsymmetricDistribution), flipout.using(model, scheme="flipout"):
        pass


@pytest.mark.parametrize("group", [0, -1, 2.5, "2"])
def test_a_bad_group_is_refused(group) -> None:
    with pytest.raises(InvalidArgument, match="group"):
        flipout.Flipout(group=group)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_many_pieces_are_summed_without_rounding_each_time(dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pieces with gradients of one sign: a running sum in half precision would lose the last ones."""
    x = torch.rand(100, 256, 64).to(dtype).requires_grad_()
    grad = torch.full((100, 256, 2), 0.01, dtype=dtype)
    errors = []
    for numbers in (2**30, 256 * 64):
        monkeypatch.setattr("flipout.schemes.spec._CACHED", numbers)
        layer = flipout.nn.Linear(64, 2, bias=False, distribution=NOISE, dtype=dtype)
        layer(x).backward(grad)
        assert layer.weight.grad is not None
        truth = (grad.float().flatten(0, 1).T @ x.detach().float().flatten(0, 1)).double()
        errors.append(float((layer.weight.grad.double() - truth).norm() / truth.norm()))
    one_piece, many_pieces = errors
    assert many_pieces < 2 * one_piece + 1e-6


def test_backward_inside_autocast_equals_backward_outside() -> None:
    layer = flipout.nn.Linear(8, 6, distribution=NOISE)
    x = torch.randn(5, 8, requires_grad=True)
    gradients = []
    for enabled in (False, True):
        with flipout.hold(layer, seed=1):
            y = layer(x)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            gradients.append(torch.autograd.grad(y.square().sum(), [x, layer.weight]))
    torch.testing.assert_close(*gradients, rtol=0.02, atol=0.05)  # autocast applies to the square itself


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
@pytest.mark.parametrize(("fan_in", "fan_out"), [(0, 3), (3, 0)])
def test_no_features(fan_in: int, fan_out: int) -> None:
    layer = flipout.nn.Linear(fan_in, fan_out, distribution=flipout.Rademacher(0.1))
    x = torch.randn(4, fan_in, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert y.shape == (4, fan_out)
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_a_sign_seed_overrides_reused_signs() -> None:
    layer = flipout.nn.Linear(8, 6, distribution=NOISE, scheme=flipout.Flipout(reuse_signs=True))
    outputs = []
    for sign_seed in (None, 1, 1, 2):
        with flipout.hold(layer, seed=5, sign_seed=sign_seed):
            outputs.append(layer(torch.ones(4, 8)))
    assert torch.equal(outputs[1], outputs[2])
    assert not torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[1], outputs[3])


@pytest.mark.parametrize("cache", [2**20, 4 * 2 * 24, 4 * 24, 0], ids=["all", "two", "one", "none"])
@pytest.mark.parametrize(
    "fields", [{}, {"group": 3}, {"group": 3, "first": 2}, {"group": 2, "antithetic": True}], ids=str
)
@pytest.mark.parametrize("layout", ["tokens", "rows", "one batch", "turned"])
def test_weights_that_many_rows_share_may_be_formed(
    layout: str, fields: dict[str, Any], cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and gradients equal those of each example's own weights, for any number of examples at a time."""
    monkeypatch.setattr("flipout.schemes.spec._CACHED", cache)
    layer = flipout.nn.Linear(6, 4, distribution=flipout.MeanField(std=0.5), where="*").double()
    x = torch.randn(9, 33, 6, dtype=torch.float64)
    if layout == "one batch":
        x = x[:1].expand(9, 33, 6)
    if layout == "turned":
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    x = x.detach().requires_grad_()
    rows = 33 if layout == "rows" else 1
    with flipout.hold(layer, seed=5, rows=rows, **fields):
        y = layer(x.flatten(0, 1) if layout == "rows" else x).view_as(x[..., :4])
        with torch.no_grad():
            without_grad = layer(x.flatten(0, 1) if layout == "rows" else x).view_as(y)
        weights = flipout.example_weights(layer)
        expected = torch.einsum("nti,noi->nto", x, weights["weight"]) + weights["bias"].unsqueeze(1)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(without_grad, expected, rtol=1e-12, atol=1e-12)
    leaves = [x, *layer.parameters()]
    found, wanted = (torch.autograd.grad(z.square().sum(), leaves, retain_graph=True) for z in (y, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_half_precision_forms_no_weights() -> None:
    """ΔŴ is 2⁻¹² of the mean and would be rounded away."""
    layer = flipout.nn.Linear(6, 4, bias=False, distribution=flipout.Gaussian(2.0**-12)).to(torch.bfloat16)
    nn.init.ones_(layer.weight)
    x = torch.tensor([1.0, -1.0] * 3).bfloat16().expand(3, 64, 6)
    assert torch.all(layer(x) != 0)
