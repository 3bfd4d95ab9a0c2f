"""Data-parallel training has the variance that the paper's appendix predicts.

If each of R ranks has its own base, the averaged gradient is the mean of R independent gradients of batches of N/R
examples. Its variance is (1/R) (α R/N + (N/R − 1) R/N · c) = α/N + (N/R − 1)/N · c, where the covariance c is γ for
flipout and β + γ for shared perturbations. With one base for all ranks it is the variance of one batch of N examples:
α/N + (N − 1)/N · c.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import flipout
from flipout.schemes import SchemeName
from tests.ranks import spawned
from tests.statistics import assert_mean, assert_same_mean, squared_deviations
from tests.variance import regression

RANKS, EACH = 3, 24
SIZE = RANKS * EACH
STEPS, COPIES = 20, 256  # each step draws COPIES independent gradients
SCHEMES: list[SchemeName] = ["flipout", "shared"]


def build(scheme: SchemeName, share_base: bool) -> nn.Module:
    """Build COPIES of the regression. The groups of a convolution have separate inputs, noise and signs."""
    layer = nn.Conv1d(3 * COPIES, COPIES, 1, groups=COPIES, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(regression.MEAN[:, None].expand_as(layer.weight))
    noise = flipout.MultiplicativeGaussian(regression.SIGMA)
    return flipout.perturb(nn.Sequential(layer), noise, scheme=scheme, share_base=share_base)


def draws(model: nn.Module, examples: int, generator: torch.Generator) -> Tensor:
    """Return (STEPS · COPIES, 3) gradients."""
    (parameter,) = model.parameters()
    gradients = []
    for _ in range(STEPS):
        x, y = regression.data(examples * COPIES, generator)
        output = model(x.view(examples, 3 * COPIES, 1))
        parameter.grad = None
        (regression.loss(output, y.view(examples, COPIES, 1)) * COPIES).backward()
        assert parameter.grad is not None
        gradients.append(parameter.grad.squeeze(-1).clone())
    return torch.cat(gradients)


def work(rank: int) -> dict[Any, Any]:
    torch.set_num_threads(1)
    gradients = {}
    for scheme in SCHEMES:
        for share in (False, True):
            model = build(scheme, share)
            torch.manual_seed(7)  # the same on all ranks: only the rank tells their bases apart
            generator = torch.Generator().manual_seed(rank)
            gradients[scheme, share] = draws(DistributedDataParallel(model), EACH, generator)
    return gradients


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    return spawned(work, RANKS, tmp_path_factory.mktemp("ranks"))


def squares(gradients: Tensor) -> Tensor:
    """Return squared deviations per draw, averaged over the entries. Their mean is the variance."""
    return torch.from_numpy(squared_deviations(gradients)).mean(1)


def predicted(scheme: SchemeName, share_base: bool) -> float:
    return regression.variance(scheme, SIZE) if share_base else regression.variance(scheme, EACH) / RANKS


@pytest.mark.parametrize("share_base", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_averaged_gradient_has_the_predicted_variance(ranks, scheme: SchemeName, share_base: bool) -> None:
    found = squares(ranks[0][scheme, share_base])
    assert_mean(found, predicted(scheme, share_base))
    error = float(found.std()) / len(found) ** 0.5
    assert abs(predicted(scheme, share_base) - predicted(scheme, not share_base)) > 10 * error


@pytest.mark.parametrize("scheme", SCHEMES)
def test_independent_bases_have_the_variance_of_the_appendix(scheme: SchemeName) -> None:
    known = regression.truth()
    covariance = {"flipout": known["gamma"], "shared": known["beta"] + known["gamma"]}[scheme]
    assert predicted(scheme, False) == pytest.approx(known["alpha"] / SIZE + (EACH - 1) / SIZE * covariance)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_shared_base_has_the_variance_of_one_process(ranks, scheme: SchemeName) -> None:
    model = build(scheme, True)
    torch.manual_seed(8)
    alone = draws(model, SIZE, torch.Generator().manual_seed(RANKS))
    assert_same_mean(squares(ranks[0][scheme, True]), squares(alone))


def test_flipout_is_below_shared_if_each_rank_has_its_own_base(ranks) -> None:
    found = [squares(ranks[0][scheme, False]) for scheme in SCHEMES]
    errors = [float(squared.std()) / len(squared) ** 0.5 for squared in found]
    assert found[0].mean() + 10 * (errors[0] + errors[1]) < found[1].mean()


def test_all_ranks_have_the_averaged_gradient(ranks) -> None:
    for gradients in ranks[1:]:
        torch.testing.assert_close(gradients, ranks[0], rtol=0, atol=0)
