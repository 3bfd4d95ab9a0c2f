"""What other libraries get wrong, one test for each mistake, named after it."""

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout.draws.draw import fresh_seed
from flipout.schemes import SchemeName
from tests import many_draws
from tests.statistics import assert_mean, assert_variance

NOISE = flipout.Gaussian(0.5)
SCHEMES = ("shared", "flipout", flipout.Flipout(group=2), "independent")


def shape_after(examples: int, layer: nn.Module) -> tuple[int, ...]:
    """An input for a convolution."""
    convolution: Any = layer
    return examples, convolution.in_channels, *[5 + i for i in range(len(convolution.kernel_size))]


CONVOLUTIONS = [
    nn.Conv1d(4, 6, 3, stride=2, padding=2, padding_mode="circular", groups=2),
    nn.Conv2d(4, 6, 3, padding="same", dilation=2, padding_mode="reflect", bias=False),
    nn.Conv2d(4, 6, (2, 3), padding=(1, 2), padding_mode="replicate", groups=2),
    nn.Conv3d(2, 3, 2, padding=1, stride=(1, 2, 1)),
    nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
    nn.ConvTranspose2d(4, 6, 3, stride=(2, 3), output_padding=(1, 2), dilation=3),
    nn.ConvTranspose3d(2, 3, 2, stride=2, output_padding=(0, 1, 0), bias=False),
]


def test_signs_drawn_per_pixel_or_per_token() -> None:
    """The response to one pixel or token does not depend on where it stands."""
    linear = flipout.nn.Linear(5, 4, distribution=NOISE, dtype=torch.float64)
    conv = flipout.nn.Conv2d(3, 4, 1, distribution=NOISE, dtype=torch.float64)
    tokens = linear(torch.randn(6, 1, 5, dtype=torch.float64).expand(6, 7, 5))
    pixels = conv(torch.randn(6, 3, 1, 1, dtype=torch.float64).expand(6, 3, 4, 4)).flatten(2)
    torch.testing.assert_close(tokens, tokens[:, :1].expand_as(tokens), rtol=1e-12, atol=0)
    torch.testing.assert_close(pixels, pixels[..., :1].expand_as(pixels), rtol=1e-12, atol=0)


def test_tokens_of_one_example_averaging_its_noise_away() -> None:
    """The mean over an example's tokens keeps all of the variance; with signs per token 1/T of it would be left."""
    layer = flipout.nn.Linear(3, 2, distribution=NOISE, dtype=torch.float64)
    x = torch.ones(1, 8, 3, dtype=torch.float64)
    assert_variance(many_draws.outputs(layer, x, many_draws.seeds(5000)).mean(2), 3 * 0.25, kurtosis=3)


def test_output_signs_drawn_from_a_float_range_instead_of_plus_and_minus_one() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        layer = flipout.nn.Linear(40, 30, distribution=flipout.Rademacher(0.5), dtype=dtype)
        nn.init.zeros_(layer.weight)
        with flipout.hold(layer, seed=0):
            layer(torch.zeros(8, 40, dtype=dtype))
            seen = flipout.example_weights(layer)["weight"]
        assert torch.all(seen.abs() == 0.5)


@pytest.mark.parametrize("scheme", [*SCHEMES, "local_reparam"], ids=str)
def test_the_mean_left_inside_the_perturbation(scheme: SchemeName | flipout.Scheme) -> None:
    """Then noise of spread 0 would still flip the mean, and the output's variance would have |W̄|² in it."""
    layer = flipout.nn.Linear(5, 4, distribution=flipout.MeanField(), scheme=scheme, dtype=torch.float64)
    x = torch.randn(3, 5, dtype=torch.float64)
    with torch.no_grad():
        layer.get_parameter("weight_rho").fill_(-1e4)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    noisy = flipout.nn.Linear(5, 4, distribution=NOISE, scheme=scheme, dtype=torch.float64)
    y = many_draws.outputs(noisy, x, many_draws.seeds(5000))
    assert_mean(y, F.linear(x, noisy.weight, noisy.bias))
    assert_variance(y, 0.25 * x.square().sum(1, keepdim=True))


def test_the_global_generator_reseeded_in_forward() -> None:
    model = flipout.perturb(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), NOISE)
    torch.manual_seed(4)
    fresh_seed(torch.device("cpu"))
    expected = torch.rand(3)
    torch.manual_seed(4)
    model(torch.ones(2, 3)).sum().backward()
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("sizes", [(2, 5), (5, 2)])
@pytest.mark.parametrize("kind", [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d])
def test_transposed_convolutions_with_in_unlike_out_crashing(
    kind: Any, sizes: tuple[int, int], scheme: SchemeName | flipout.Scheme
) -> None:
    layer = flipout.perturb(kind(*sizes, 2, dtype=torch.float64), NOISE, scheme=scheme)
    x = torch.randn(shape_after(3, layer), dtype=torch.float64, requires_grad=True)
    with flipout.hold(layer, seed=1):
        y = layer(x)
        seen = flipout.example_weights(layer)["weight"]
    function = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}[x.dim()]
    expected = torch.cat([function(row.unsqueeze(0), w, layer.bias) for row, w in zip(x, seen, strict=True)])
    torch.testing.assert_close(y, expected)
    y.square().sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("plain", CONVOLUTIONS, ids=repr)
def test_options_silently_dropped_on_conversion(plain: nn.Module, scheme: SchemeName | flipout.Scheme) -> None:
    """`groups`, `padding_mode`, `output_padding`, `dtype`: without noise the noisy path is the plain layer."""
    plain = plain.double()
    converted = flipout.perturb(copy.deepcopy(plain), flipout.Gaussian(0.0), scheme=scheme)
    x = torch.randn(shape_after(3, plain), dtype=torch.float64)
    torch.testing.assert_close(converted(x), plain(x))
    assert converted(x).dtype == torch.float64
    kept = [name for name in vars(plain) if not name.startswith("_") and name != "training"]
    assert "groups" in kept
    assert [getattr(converted, name) for name in kept] == [getattr(plain, name) for name in kept]
    flipout.freeze(converted)
    assert type(converted) is type(plain)
    assert repr(converted) == repr(plain)


RECURRENT = [
    nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True, proj_size=2),
    nn.LSTM(3, 4, num_layers=3, bias=False),
    nn.GRU(3, 4, num_layers=2, bidirectional=True),
    nn.RNN(3, 4, num_layers=2, nonlinearity="relu"),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("plain", RECURRENT, ids=repr)
def test_options_of_recurrent_layers_silently_dropped(plain: nn.RNNBase, scheme: SchemeName | flipout.Scheme) -> None:
    """`num_layers`, `bidirectional`, `proj_size`: without noise the noisy path is the plain layer."""
    plain = copy.deepcopy(plain).double()
    converted = flipout.perturb(copy.deepcopy(plain), flipout.Gaussian(0.0), scheme=scheme)
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(converted(x), plain(x))
    assert repr(flipout.freeze(converted)) == repr(plain)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_noise_of_an_lstm_redrawn_at_every_step(scheme: SchemeName | flipout.Scheme) -> None:
    """Of a constant input without recurrence every step has the same gates: c' = f c + i g grows geometrically."""
    layer = flipout.perturb(nn.LSTM(3, 2).double(), NOISE, scheme=scheme, where="weight_ih*")
    nn.init.zeros_(layer.get_parameter("weight_hh_l0"))
    x = torch.ones(6, 4, 3, dtype=torch.float64)
    with flipout.hold(layer, seed=1):
        cells = torch.stack([layer(x[: t + 1])[1][1][0] for t in range(6)])
    steps = torch.diff(cells, dim=0, prepend=torch.zeros_like(cells[:1]))
    ratio = steps[1:] / steps[:-1]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))


@pytest.mark.parametrize("value", [100.0, 1e3, 1e4])
def test_log1p_of_exp_overflowing(value: float) -> None:
    layer = flipout.nn.Linear(3, 3, distribution=flipout.MeanField())
    rho = layer.get_parameter("weight_rho")
    with torch.no_grad():
        rho.fill_(value)
    y = layer(torch.ones(2, 3))
    y.sum().backward()
    assert rho.grad is not None
    assert bool(y.isfinite().all() & rho.grad.isfinite().all())
    assert float(y.detach().abs().max()) > 0.1 * value


def in_low_precision() -> list[tuple[nn.Module, Tensor]]:
    return [
        (nn.Linear(4, 3), torch.randn(2, 4)),
        (nn.Conv1d(4, 6, 2), torch.randn(2, 4, 5)),
        (nn.ConvTranspose2d(4, 6, 2), torch.randn(2, 4, 3, 3)),
        (nn.Embedding(5, 4), torch.tensor([[0, 1], [2, 2]])),
        (nn.EmbeddingBag(5, 4), torch.tensor([[0, 1], [2, 2]])),
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), torch.randn(2, 3, 4)),
        (nn.LayerNorm(4), torch.randn(2, 4)),
        (nn.RMSNorm(4), torch.randn(2, 4)),
        (nn.GroupNorm(2, 4), torch.randn(2, 4)),
        (nn.BatchNorm1d(4), torch.randn(8, 4)),
    ]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("index", range(len(in_low_precision())), ids=lambda i: type(in_low_precision()[i][0]).__name__)
@pytest.mark.parametrize("distribution", [flipout.MeanField(), flipout.DropConnect()], ids=repr)
def test_layers_that_fail_in_bf16(
    index: int, dtype: torch.dtype, scheme: SchemeName | flipout.Scheme, distribution: flipout.Distribution
) -> None:
    model, x = in_low_precision()[index]
    flipout.perturb(model.to(dtype), distribution, scheme=scheme, where="*")
    y = model(x.to(dtype) if x.is_floating_point() else x)
    y.sum().backward()
    assert y.dtype == dtype
    assert bool(y.isfinite().all())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == dtype
        assert bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("distribution", [NOISE, flipout.DropConnect(), flipout.MeanField()], ids=repr)
def test_a_mean_weights_mode_that_does_not_exist(distribution: flipout.Distribution) -> None:
    plain = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    model = flipout.perturb(copy.deepcopy(plain), distribution)
    x = torch.randn(5, 2, 4, 4)
    assert not torch.equal(model(x), plain(x))
    assert torch.equal(model.eval()(x), plain(x))
    assert torch.equal(flipout.freeze(model.train())(x), plain(x))


def test_the_kl_averaged_or_added_once_per_time_step_or_counted_twice() -> None:
    """By hand: Σ log(s / σ) + (σ² + W̄²) / 2s² − ½ over the weights of an LSTM, 12 steps long, called twice."""
    distribution = flipout.MeanField(std=0.3, prior=flipout.bayes.Normal(0.0, 2.0))
    model: Any = flipout.perturb(nn.LSTM(3, 4, dtype=torch.float64), distribution)
    for _ in range(2):
        model(torch.randn(12, 5, 3, dtype=torch.float64))
    expected = sum(
        float((math.log(2 / 0.3) + (0.09 + weight.square()) / 8 - 0.5).sum())
        for weight in (model.weight_ih_l0.detach(), model.weight_hh_l0.detach())
    )
    assert flipout.bayes.kl(model).item() == pytest.approx(expected, rel=1e-9)


def test_prior_variance_used_as_a_standard_deviation() -> None:
    """A posterior N(0, 3²) is the prior Normal(0, 3), so the KL is 0; to a variance of 3 it would be 0.45 a weight."""
    distribution = flipout.MeanField(std=3.0, prior=flipout.bayes.Normal(0.0, 3.0))
    model: Any = flipout.perturb(nn.Linear(4, 3, bias=False, dtype=torch.float64), distribution)
    nn.init.zeros_(model.weight)
    assert flipout.bayes.kl(model).item() == pytest.approx(0.0, abs=1e-10)


def test_priors_missing_from_the_state_dict() -> None:
    saved, loaded = (
        flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=flipout.bayes.Normal(0.5, std))) for std in (0.1, 2.0)
    )
    assert flipout.bayes.kl(saved) != flipout.bayes.kl(loaded)
    loaded.load_state_dict(saved.state_dict())
    assert flipout.bayes.kl(saved) == flipout.bayes.kl(loaded)
