"""Models under kernels give the numbers that they give under eager code."""

import copy

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.backend import Backend, choosing
from flipout.distributions.base import standard
from flipout.draws.noise import Stream
from flipout.schemes import SchemeName
from tests.networks import TiedLM, convnet, encoder, gradients, mlp
from tests.ops.triton.kernels import DEVICE, MARKS

pytestmark = MARKS
CASES = {
    "mlp": (mlp, lambda: torch.randn(5, 4, dtype=torch.float64)),
    "convnet": (convnet, lambda: torch.randn(5, 2, 6, 6, dtype=torch.float64)),
    "transformer": (lambda: encoder(layers=1), lambda: torch.randn(5, 3, 8, dtype=torch.float64)),
    "tied": (TiedLM, lambda: torch.randint(7, (5, 3))),
}
GROUPED = flipout.Flipout(group=2)
DISTRIBUTIONS = [flipout.MeanField(std=0.1), flipout.Rademacher(0.2), flipout.DropConnect(0.5)]


def results(model: nn.Module, x: Tensor, backend: Backend, **fields) -> list[Tensor]:
    """Return the output and the gradients of all Parameters."""
    model.zero_grad()
    with choosing(backend), flipout.hold(model, seed=-7, first=3, **fields):
        y = model(x)
        y.square().sum().backward()
    return [y.detach().cpu(), *(gradient.cpu() for gradient in gradients(model).values())]


def assert_agrees(model: nn.Module, x: Tensor, **fields) -> None:
    """Compare a model on the CPU with its copy on the device."""
    there = copy.deepcopy(model).to(DEVICE)
    expected = results(model, x, "eager", **fields)
    torch.testing.assert_close(results(there, x.to(DEVICE), "triton", **fields), expected)
    torch.testing.assert_close(results(there, x.to(DEVICE), "eager", **fields), expected)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [*((name, "flipout") for name in CASES), *(("mlp", scheme) for scheme in ("shared", "independent", GROUPED))],
    ids=str,
)
def test_outputs_and_gradients_agree(name: str, scheme: SchemeName | flipout.Scheme) -> None:
    make, inputs = CASES[name]
    where = "*.weight" if name == "tied" else None
    assert_agrees(flipout.perturb(make().double(), flipout.MeanField(std=0.1), scheme=scheme, where=where), inputs())


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: type(d).__name__)
def test_antithetic_draws_agree(distribution: flipout.Distribution) -> None:
    assert_agrees(flipout.perturb(mlp().double(), distribution), torch.randn(5, 4).double(), antithetic=True)


def test_uniform_noise_and_output_noise_agree() -> None:
    x = torch.randn(5, 4).double()
    assert_agrees(flipout.perturb(mlp().double(), flipout.DropConnect(0.3), scheme="shared"), x)
    assert_agrees(flipout.perturb(mlp().double(), flipout.Gaussian(0.3), scheme="local_reparam"), x)


def test_gradients_of_vmapped_draws_agree() -> None:
    model = flipout.perturb(mlp(), flipout.MeanField(std=0.1)).to(DEVICE)
    means = {name: p.detach() for name, p in model.named_parameters()}
    x = torch.randn(3, 5, 4, device=DEVICE)
    seeds = torch.tensor([1, -2, 2**63 - 1], device=DEVICE)

    def loss(means: dict[str, Tensor], seed: Tensor, x: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            return torch.func.functional_call(model, means, (x,)).square().mean()

    found = []
    for request in (choosing("triton"), choosing("eager")):
        with request:
            found.append(torch.vmap(torch.func.grad(loss), (None, 0, 0))(means, seeds, x))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("layout", ["transposed", "with gaps"])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: type(d).__name__)
def test_parameters_need_not_be_contiguous(distribution: flipout.Distribution, layout: str) -> None:
    torch.manual_seed(0)
    half = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32  # so that the fused linear kernel serves
    layer = nn.Linear(16, 8, device=DEVICE, dtype=half)
    wide = torch.randn(8, 32).to(DEVICE, half)  # moved first: a move to another device or dtype closes gaps
    layer.weight = nn.Parameter(wide[:, :16].T.contiguous().T if layout == "transposed" else wide[:, ::2])
    layer.bias = nn.Parameter(wide[0, ::4])
    model = flipout.perturb(layer, distribution, where="weight")
    assert not model.weight.is_contiguous()
    x = torch.randn(5, 16).to(DEVICE, half)
    actual, expected = (results(model, x, backend) for backend in ("triton", "eager"))
    rtol, atol = (2.0**-4, 0.5) if DEVICE.type == "cuda" else (1e-4, 1e-4)
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


class ClampedNoise(flipout.MeanField):
    """A distribution with a learned spread, whose noise no kernel makes."""

    def source(self, **learned: Tensor) -> Tensor:
        return learned["rho"]

    def noise(self, stream: Stream) -> Tensor:
        return stream.normal().clamp(-2, 2)


class SignNoise(ClampedNoise):
    @standard("sign")
    def noise(self, stream: Stream) -> Tensor:
        return stream.sign()


@pytest.mark.parametrize("kind", [ClampedNoise, SignNoise])
@pytest.mark.parametrize("scheme", ["flipout", "shared"])
def test_a_learned_spread_whose_noise_no_kernel_makes(scheme: SchemeName, kind: type[flipout.MeanField]) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(mlp(), kind(std=0.5), scheme=scheme).to(DEVICE)
    x = torch.randn(5, 4, device=DEVICE)
    actual, expected = (results(model, x, backend) for backend in ("triton", "eager"))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
