"""Log-likelihoods are counted where the examples are, and a loss in their place is refused."""

import pytest
import torch

from flipout.bayes._log_likelihoods import check_finite, check_not_a_loss, count_examples
from flipout.bayes._terms import Terms
from flipout.errors import InvalidInput, NonFinite


def test_examples_are_counted_in_their_dimension() -> None:
    assert count_examples(torch.zeros(5), torch.zeros(5), 0, 5, 100) == 5
    assert count_examples(torch.zeros(7, 5), torch.zeros(7, 5), 1, None, 100) == 5


@pytest.mark.parametrize(
    ("values", "target", "seen", "message"),
    [
        (1.0, torch.zeros(5), None, "returned <class 'float'>"),
        (torch.zeros(()), torch.zeros(5), None, r"a tensor of shape \(\)"),
        (torch.zeros(5), torch.zeros(4), None, r"shape \(5,\) for a target of shape \(4,\)"),
        (torch.zeros(0), torch.zeros(0), None, "without examples"),
        (torch.zeros(7, 5), torch.zeros(7, 5), 5, r"batch_dim=1"),
    ],
)
def test_what_cannot_be_counted_is_refused(values, target, seen, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        count_examples(values, target, 0, seen, 100)


def test_suspicious_counts_are_named() -> None:
    with pytest.warns(RuntimeWarning, match="examples, where the model's layers saw 5"):
        count_examples(torch.zeros(15), torch.zeros(15), 0, 5, 100)
    with pytest.warns(RuntimeWarning, match="A batch of 5 with num_data=3"):
        count_examples(torch.zeros(5), torch.zeros(5), 0, 5, 3)


def test_a_loss_is_no_log_probability() -> None:
    losses = torch.tensor([0.05, 2.5])
    with pytest.raises(InvalidInput, match=r"values up to 2.5 for targets of dtype torch.int64"):
        check_not_a_loss(losses, torch.tensor([0, 1]))
    check_not_a_loss(losses[:1], torch.tensor([0]))  # rounding
    check_not_a_loss(losses, torch.tensor([0.0, 1.0]))  # a density may be above 1


def test_an_infinite_term_is_named() -> None:
    def terms(log_likelihood: float, kl: float) -> Terms:
        loss = torch.tensor(kl - log_likelihood)
        return Terms(loss, torch.tensor(log_likelihood), torch.tensor(kl), 1.0, 5, 100)

    check_finite(terms(-1.0, 2.0))
    with pytest.raises(NonFinite, match="the KL is inf"):
        check_finite(terms(-1.0, torch.inf))
    with pytest.raises(NonFinite, match="the log-likelihood is -inf"):
        check_finite(terms(-torch.inf, 1.0))
