"""The bound of a whole training set, and the weight of the KL."""

import copy
import pickle
from typing import Any

import pytest
import torch

from flipout.bayes import warm_up
from flipout.bayes._terms import Terms, check_weight
from flipout.errors import InvalidArgument


def test_the_bound_is_of_the_whole_training_set() -> None:
    terms = Terms(torch.tensor(1.0), torch.tensor(-6.0), torch.tensor(20.0), 0.5, 3, 30)
    assert terms.elbo == -6 * 10 - 20


def test_the_weight_rises_linearly_and_stays() -> None:
    weight = warm_up(4, 0.5)
    assert [weight(step) for step in (0, 1, 4, 9)] == [0, 0.125, 0.5, 0.5]


def test_terms_that_are_taken_for_the_loss_say_where_it_is() -> None:
    terms: Any = Terms(torch.tensor(1.0), torch.tensor(-6.0), torch.tensor(20.0), 0.5, 3, 30)
    with pytest.raises(AttributeError, match=r"no 'backward'; it has loss, .*write elbo\(x, y\)\.loss\.backward\(\)"):
        terms.backward()
    with pytest.raises(AttributeError, match=r"no 'nll'; it has loss, log_likelihood, kl, .* and elbo\.$"):
        terms.nll  # noqa: B018
    assert copy.copy(terms) == pickle.loads(pickle.dumps(terms)) == terms


@pytest.mark.parametrize("weight", [-1, float("inf"), float("nan"), True, "1", None])
def test_a_weight_is_a_finite_number(weight) -> None:
    with pytest.raises(InvalidArgument, match="expected a finite number ≥ 0"):
        check_weight("kl_weight", weight)
