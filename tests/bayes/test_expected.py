"""The likelihood of a prediction: named, moved with its dimension, or refused."""

import pytest
import torch
from torch import nn

from flipout.bayes import Prediction, likelihoods
from flipout.bayes._expected import predictive_likelihood
from flipout.errors import InvalidArgument, InvalidInput


def test_likelihoods_move_with_the_examples() -> None:
    assert predictive_likelihood(None, 0) is None
    assert isinstance(predictive_likelihood("categorical", 0), likelihoods.Categorical)
    for dim, batch_dim, expected in ((0, 1, 1), (2, 1, 2), (1, 2, 2), (-1, 2, -1), (1, 0, 1)):
        moved = predictive_likelihood(likelihoods.Categorical(dim), batch_dim)
        assert isinstance(moved, likelihoods.Categorical)
        assert moved.dim == expected
    # The classes of dimension 1 are in dimension 2 once the examples of dimension 2 are in front.
    output = torch.randn(3, 4, 5, dtype=torch.float64)
    moved = predictive_likelihood(likelihoods.Categorical(1), 2)
    assert moved is not None
    torch.testing.assert_close(moved.mean(output.movedim(2, 0)), output.softmax(1).movedim(2, 0))


@pytest.mark.parametrize(
    ("requested", "dim", "message"),
    [
        ("gaussian", 0, "how large is the noise"),
        (nn.Linear(1, 1), 0, "a Linear given; expected a likelihood"),
        (lambda output, target: output, 0, "a function does not say what is expected"),
        (likelihoods.Categorical(-2), 1, "from the front"),
        (likelihoods.Categorical(0), 0, "the dimension of the examples, not of the classes"),
        (likelihoods.Categorical(1), 1, "the dimension of the examples, not of the classes"),
        (likelihoods.Gaussian(torch.ones(2, 3)), 1, "one for each feature of the last dimension"),
    ],
)
def test_what_says_nothing_of_a_target_is_refused(requested, dim, message) -> None:
    with pytest.raises(InvalidArgument, match=message):
        predictive_likelihood(requested, dim)


def test_classes_are_not_counted_over_the_examples() -> None:
    with pytest.raises(InvalidInput, match=r"Categorical\(dim=-2\) of outputs \(5, 3\): .* not of the classes"):
        Prediction.from_outputs(torch.randn(2, 5, 3), likelihoods.Categorical(-2))
