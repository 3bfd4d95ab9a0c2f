"""Likelihoods by name."""

from typing import Any, get_args

import pytest

from flipout import errors
from flipout.bayes._named import BY_NAME, LikelihoodName, likelihood_of
from flipout.bayes.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Poisson


def test_type_checkers_know_every_name() -> None:
    assert set(get_args(LikelihoodName)) == BY_NAME.keys()
    assert all(isinstance(likelihood_of(name), Likelihood) for name in BY_NAME)


def test_names() -> None:
    for name, kind in {
        "categorical": Categorical,
        "gaussian": Gaussian,
        "bernoulli": Bernoulli,
        "poisson": Poisson,
    }.items():
        assert isinstance(likelihood_of(name), kind)
    instance = Categorical(1)
    assert likelihood_of(instance) is instance


@pytest.mark.parametrize("likelihood", ["softmax", 3, None])
def test_what_is_no_likelihood_is_refused(likelihood: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"likelihood=.*expected one of \['bernoulli', 'categorical'"):
        likelihood_of(likelihood)
