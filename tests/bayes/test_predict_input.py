"""predict(): what it refuses, and inputs and outputs that are counted in any dimension."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.bayes import likelihoods, predict
from tests.bayes.test_predict import NOISE, X, bayesian, same
from tests.networks import mlp

BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"samples": 0}, errors.InvalidArgument, r"predict\(samples=0\): expected a whole number ≥ 1, or 'auto'"),
    ({"samples": -3}, errors.InvalidArgument, "samples=-3"),
    ({"samples": 2.0}, errors.InvalidArgument, "samples=2.0"),
    ({"samples": "many"}, errors.InvalidArgument, "samples='many'"),
    ({"samples": True}, errors.InvalidArgument, "samples=True"),
    ({"chunk": 0}, errors.InvalidArgument, "chunk=0"),
    ({"group": 0}, errors.InvalidArgument, "group=0"),
    ({"most": 0, "samples": "auto"}, errors.InvalidArgument, "most=0"),
    ({"tolerance": 0.0}, errors.InvalidArgument, "tolerance=0.0"),
    ({"quantiles": (1.1,)}, errors.InvalidArgument, "quantiles=.*between 0 and 1"),
    ({"likelihood": "softmax"}, errors.InvalidArgument, "likelihood='softmax': expected one of"),
    ({"likelihood": F.cross_entropy}, errors.InvalidArgument, "a function does not say what is expected"),
    ({"seed": 1.5}, errors.InvalidArgument, "seed=1.5"),
    ({"x": X[:0]}, errors.InvalidInput, "there are no inputs"),
    ({"x": ()}, errors.InvalidInput, r"an empty tuple given, .*expected a tensor, a tuple of arguments or a dict"),
    ({"x": [1.0]}, errors.InvalidInput, r"a list of 1 float given, .*expected a tensor"),
    ({"x": (X, X.numpy())}, errors.InvalidInput, r"argument 1 is of type numpy\.ndarray; expected tensors"),
    ({"x": (X, X[:2])}, errors.InvalidInput, r"argument 1 is a tensor of shape \(2, 4\); .* in dimension 0"),
    ({"x": {"input": X, "at": X[0, 0]}}, errors.InvalidInput, r"at is a tensor of shape \(\); .*, here 5.*Expand"),
    ({"output": 1.5}, errors.InvalidArgument, r"predict\(output=1.5\): expected the name of a field"),
    (
        {"output": "logits"},
        errors.InvalidInput,
        r"a tensor of shape \(160, 3\), which has no 'logits'. Leave output= out",
    ),
    ({"batch_dim": -1}, errors.InvalidArgument, r"predict\(batch_dim=-1\): expected a whole number ≥ 0 of"),
    ({"batch_dim": "time"}, errors.InvalidArgument, "batch_dim='time'.*or a pair"),
    ({"batch_dim": (0, 0, 0)}, errors.InvalidArgument, r"batch_dim=\(0, 0, 0\)"),
    ({"batch_dim": 2}, errors.InvalidInput, r"shape \(5, 4\); .* dimension 2"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD, ids=[message for *_, message in BAD])
def test_bad_input(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        predict(bayesian(), **{"x": X, **change})


def test_models_that_do_not_fit() -> None:
    with pytest.raises(errors.NotPerturbed, match=r"no perturbed layers.*MeanField\(prior="):
        predict(mlp(), X)
    lstm = flipout.perturb(nn.LSTM(4, 3), NOISE)
    with pytest.raises(
        errors.InvalidInput, match=r"the model returned tuple\(0: \(2, 96, 3\), 1: tuple\); .* output=0"
    ):
        predict(lstm, torch.randn(2, 3, 4), batch_dim=1)
    flat = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Flatten(0)), NOISE)
    with pytest.raises(errors.InvalidInput, match=r"the model returned shape \(480,\) for 160 rows"):
        predict(flat, X.float())


def test_the_shape_that_was_given_is_named() -> None:
    with pytest.raises(
        errors.InvalidInput, match=r"shape \(4,\) given, 4 examples.*x\.unsqueeze\(0\).*input of shape \(128,\)"
    ):
        predict(bayesian(), X[0])
    with pytest.raises(errors.InvalidInput, match=r"shape \(5, 3\) given, 5 examples in dimension 0; 32 samples.*said"):
        predict(bayesian(), X[:, :3])


class TimeMajor(nn.Module):
    """(time, N, 4) → (time, N, 3), or (N, 3) of the last step."""

    def __init__(self, last: bool = False) -> None:
        super().__init__()
        self.lstm, self.out, self.last = nn.LSTM(4, 5), nn.Linear(5, 3), last

    def forward(self, x: Tensor) -> Tensor:
        y = self.lstm(x)[0]
        return self.out(y[-1] if self.last else y)


def test_inputs_that_are_counted_in_another_dimension() -> None:
    model = flipout.perturb(TimeMajor().double(), NOISE, batch_dim=1)
    x = torch.randn(7, 5, 4, dtype=torch.float64)
    with pytest.raises(errors.ExampleCount, match=r"fixed by predict\(batch_dim=0\).*predict\(…, batch_dim=1\)"):
        predict(model, x, 16)
    prediction = predict(model, x, 16, batch_dim=1, seed=1)
    assert prediction.mean.shape == (5, 7, 3)


def test_inputs_and_outputs_with_different_layouts() -> None:
    torch.manual_seed(0)
    model = flipout.perturb(TimeMajor(last=True).double(), NOISE)
    x = torch.randn(7, 5, 4, dtype=torch.float64)
    prediction = predict(model, x, 64, batch_dim=(1, 0), seed=1)
    same(prediction, predict(model, x, 64, batch_dim=(1, 0), seed=1, chunk=5))
    assert prediction.mean.shape == (5, 3)


def test_classes_are_found_where_the_batch_dimension_moves() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:  # (4, N) → (time 2, classes 3, N)
            return self.out(x.T).unflatten(1, (2, 3)).permute(1, 2, 0)

    model = flipout.perturb(Last().double(), NOISE)
    x = torch.randn(4, 5, dtype=torch.float64)
    prediction = predict(model, x, 16, likelihood=likelihoods.Categorical(dim=1), batch_dim=(1, 2), seed=1)
    torch.testing.assert_close(prediction.mean.sum(2), torch.ones(5, 2, dtype=torch.float64))
    with pytest.raises(errors.InvalidArgument, match="from the front"):
        predict(model, x, 16, likelihood=likelihoods.Categorical(dim=-2), batch_dim=(1, 2))


def test_the_noise_of_a_gaussian_has_to_be_said() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"elbo\.likelihood"):
        predict(bayesian(), X, 16, likelihood="gaussian")  # pyright: ignore[reportArgumentType]
