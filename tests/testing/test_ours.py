"""Every layer of this library under every scheme: what each scheme promises, and no more."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import ops, testing
from flipout.schemes import Scheme

NOISE = flipout.MeanField(std=0.3, prior=flipout.bayes.Normal(0.1, 0.7))
SCHEMES: dict[str, Any] = {
    "flipout": flipout.Flipout(),
    "groups": flipout.Flipout(group=2),
    "independent": flipout.Independent(),
    "shared": flipout.Shared(),
    "local_reparam": flipout.LocalReparam(per_position=True),
}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Twice(nn.Module):
    """Two layers of equal shape, one of them called twice, and a decoder tied to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.tied = (nn.Linear(4, 4) for _ in range(3))
        self.tied.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.tied(self.b(self.b(self.a(x).tanh()).tanh()).tanh())


LAYERS = {
    "linear": (lambda: nn.Linear(5, 3), (3, 4, 5)),
    "conv": (lambda: nn.Conv2d(2, 3, 3, padding=1), (3, 2, 4, 4)),
    "transposed": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=2), (3, 2, 4)),
    "embedding": (lambda: nn.Embedding(6, 4, padding_idx=0), (3, 4)),
    "lstm": (lambda: nn.LSTM(3, 3, batch_first=True), (3, 4, 3)),
    "gru": (lambda: nn.GRU(3, 3, batch_first=True, bidirectional=True), (3, 4, 3)),
    "norm": (lambda: nn.LayerNorm(5), (3, 4, 5)),
    "attention": (Attention, (3, 4, 4)),
    "twice": (Twice, (3, 4)),
}


CASES = [(name, scheme) for name in LAYERS for scheme in ("flipout", "shared")]
CASES += [("linear", "independent"), ("conv", "independent"), ("lstm", "independent"), ("linear", "groups")]


def build(name: str, scheme: Scheme, noise: flipout.Distribution = NOISE) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(1)
    make, shape = LAYERS[name]
    x = torch.randint(6, shape) if name == "embedding" else torch.randn(shape)
    where = ["weight"] if name in ("embedding", "norm") else None  # not perturbed unless asked for
    return flipout.perturb(make(), noise, scheme=scheme, where=where), x


@pytest.mark.parametrize(("name", "scheme"), CASES)
def test_a_layer_passes_but_for_what_its_scheme_shares(name: str, scheme: str) -> None:
    model, x = build(name, SCHEMES[scheme])
    report = testing.check(model, x, draws=100)
    assert report.names("failed") == (["independent examples"] if scheme == "shared" else []), str(report)
    unknown = [] if name in ("gru", "lstm", "twice") else ["independent layers"]
    assert report.names("not applicable") == unknown, str(report)


@pytest.mark.parametrize("scheme", ["flipout", "shared", "local_reparam"])
@pytest.mark.parametrize("name", ["linear", "conv"])
def test_as_a_black_box(name: str, scheme: str) -> None:
    model, x = build(name, SCHEMES[scheme])
    report = testing.check(lambda x: model(x), x, replace(testing.claim_of(model), weights=None), draws=400)
    expected = {"flipout": [], "shared": ["independent examples"], "local_reparam": ["one weight per example"]}[scheme]
    assert [name for name in report.names("failed") if name != "unbiased gradients"] == expected, str(report)
    # Local reparameterisation draws noise for each token, so a loss of several tokens has another gradient.
    assert (report["unbiased gradients"].outcome == "failed") == (scheme == "local_reparam"), str(report)


def test_an_lstm_as_a_black_box() -> None:
    model, x = build("lstm", SCHEMES["flipout"])
    report = testing.check(model, x, replace(testing.claim_of(model), weights=None), positions=(1,), draws=300)
    assert report.conforms, str(report)
    assert report["one weight per example"].outcome == "passed"
    assert report["independent examples"].outcome == "not applicable"


@pytest.mark.parametrize(
    "noise",
    [
        flipout.Gaussian(0.2),
        flipout.MultiplicativeGaussian(0.5),
        flipout.DropConnect(0.5),
        flipout.Rademacher(0.2),
    ],
    ids=lambda noise: type(noise).__name__,
)
@pytest.mark.parametrize("is_black_box", [False, True])
def test_distributions(noise: flipout.Distribution, is_black_box: bool) -> None:
    model, x = build("linear", SCHEMES["flipout"], noise)
    claim = testing.claim_of(model)
    report = testing.check(model, x, replace(claim, weights=None) if is_black_box else claim, draws=300)
    assert report.conforms, str(report)
    assert {"KL in closed form", "KL counted once"} <= set(report.names("not applicable"))


def test_a_claim_of_another_spread_or_shape_fails() -> None:
    model, x = build("linear", SCHEMES["flipout"], flipout.Gaussian(0.2))
    names = ["mean of the weights", "spread of the weights", "shape of the noise"]
    for weights in (testing.claim_of(model).weights, None):
        claim = replace(testing.claim_of(model), weights=weights)
        narrow = replace(claim, spread={"weight": 0.15})
        assert testing.check(model, x, narrow, only=names, draws=400).names("failed") == names[1:2]
        signs = replace(claim, noise=lambda shape: torch.randint(2, shape) * 2.0 - 1)
        assert testing.check(model, x, signs, only=names, draws=400).names("failed") == names[2:]
        shifted = replace(claim, mean={**claim.mean, "weight": lambda: model.get_parameter("weight") + 0.2})
        assert testing.check(model, x, shifted, only=names, draws=400).names("failed") == names[:1]


@pytest.mark.parametrize(
    ("scheme", "noise"),
    [
        (flipout.LowRank(1), flipout.Gaussian(0.2)),
        (flipout.RankOne(), flipout.Rademacher(0.2)),
        (flipout.Flipout(), flipout.LowRankNormal(rank=1)),
    ],
)
def test_low_rank_noise_is_refused(scheme: Scheme, noise: flipout.Distribution) -> None:
    model, x = build("linear", scheme, noise)
    with pytest.raises(flipout.errors.Unsupported, match="scheme='flipout'"):
        testing.check(model, x)


@pytest.mark.parametrize(("layer", "shape"), [(nn.Linear(4, 3), (3, 5, 4)), (nn.Conv1d(3, 4, 2), (3, 3, 6))], ids=str)
def test_rank_one_posteriors(layer: nn.Module, shape: tuple[int, ...]) -> None:
    model = flipout.bayes.rank_one(copy.deepcopy(layer), std=0.3)
    report = testing.check(model, torch.randn(shape), draws=200)
    assert report.conforms, str(report)
    assert report.names("not applicable") == ["independent layers"]


class Gain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x @ self.weight.T


class PerturbedGain(flipout.nn.Perturbed, Gain, default=("weight",)):
    factor = 2

    def forward(self, x: Tensor) -> Tensor:
        if not flipout.nn.is_noisy(self):
            return Gain.forward(self, x)
        noise = flipout.nn.perturbations(self, x, x.dtype)
        return self.factor * noise.product(ops.Linear(4, 4), x, "weight")


flipout.register(Gain, PerturbedGain)


def test_a_registered_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of CONTRIBUTING passes, and fails if its noisy product forgets the factor."""
    model, x = flipout.perturb(Gain(), NOISE), torch.randn(3, 5, 4)
    testing.assert_conforms(model, x, draws=150)
    monkeypatch.setattr(PerturbedGain, "factor", 1)
    failed = testing.check(model, x, draws=150).names("failed")
    assert {"one weight per example", "unbiased gradients"} <= set(failed)
    black_box = replace(testing.claim_of(model), weights=None)
    assert "spread of the weights" in testing.check(model, x, black_box, draws=300).names("failed")
