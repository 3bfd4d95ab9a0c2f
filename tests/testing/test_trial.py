"""The samples that the checks compare."""

import pytest
import torch
from torch import Tensor, nn

from flipout.errors import NonFinite
from flipout.testing import Claim
from flipout.testing._trial import MAX_BASIS, Trial, finite, spaced

PLAIN = nn.Linear(3, 2, bias=False)
CLAIM = Claim(PLAIN, {"weight": 1.0}, {"weight": 0.5})
X = torch.arange(12.0).view(4, 3)


def trial(claim: Claim = CLAIM, x: Tensor = X, positions: tuple[int, ...] = (), draws: int = 400) -> Trial:
    torch.manual_seed(0)
    return Trial(lambda x: claim.run(claim.draw(), x), x, claim, positions, draws, 1e-3)


def test_brute_force_has_the_moments_of_the_claim() -> None:
    sample = trial(draws=4000).brute_force(X)
    assert sample.shape == (4000, 4, 2)
    assert sample.dtype == torch.float64
    mean, std = X.sum(1), 0.5 * X.square().sum(1).sqrt()
    error = std / 4000**0.5
    assert ((sample.mean(0) - mean[:, None]).abs() < 5 * error[:, None]).all()
    torch.testing.assert_close(sample.std(0), std[:, None].expand(4, 2).double(), rtol=0.06, atol=0)


def test_inputs_with_a_single_feature_are_added() -> None:
    rows = trial().basis()
    assert torch.equal(rows[:4], X)
    assert torch.equal(rows[4:], torch.eye(3))  # so each of these outputs is a weight
    wide = trial(Claim(nn.Linear(100, 2), spread={"weight": 0.1}), torch.zeros(2, 100)).basis()
    assert len(wide) == 2 + MAX_BASIS
    assert torch.equal(wide[2:].sum(1), torch.ones(MAX_BASIS))
    assert trial(x=torch.ones(4, 3, dtype=torch.int64)).basis().shape == (4, 3)  # ids have no units


def test_marginals_are_outputs_or_weights() -> None:
    seen, truth, scale, what = trial().marginals
    assert what == "outputs"
    assert seen.shape == truth.shape == (400, 14)
    assert scale.shape == (14,)

    def weights(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        drawn = torch.stack([CLAIM.draw()["weight"] for _ in x])
        return torch.einsum("nof,nf->no", drawn, x), {"weight": drawn}

    explicit = Claim(PLAIN, {"weight": 1.0}, {"weight": 0.5}, weights=weights)
    seen, truth, scale, what = trial(explicit).marginals
    assert what == "weights"
    assert seen.shape == truth.shape == (400, 4 * 6)
    torch.testing.assert_close(scale, torch.full((24,), 0.5, dtype=torch.float64))
    assert seen.mean().abs() < 0.05  # the means are subtracted


def test_positions_can_be_made_alike() -> None:
    x = torch.randn(2, 5, 3)
    alike = trial(Claim(), x, (1,)).alike
    assert torch.equal(alike, x[:, :1].expand(2, 5, 3))


def test_linearity_in_the_weights_is_found() -> None:
    assert trial().is_linear
    assert not trial(Claim(nn.Sequential(PLAIN, nn.Tanh()), spread={"0.weight": 0.5})).is_linear
    assert trial(Claim()).is_linear  # assumed


def test_columns_are_spaced_evenly() -> None:
    columns = spaced(torch.arange(1000)[None], 11)[0]
    assert columns.tolist() == [0, 100, 200, 300, 400, 500, 599, 699, 799, 899, 999]
    assert spaced(torch.arange(9)[None], 11).shape == (1, 9)


def test_an_output_that_is_not_finite_is_refused() -> None:
    with pytest.raises(NonFinite, match=r"shape \(2, 3\)"):
        finite(torch.full((2, 3), torch.nan))
