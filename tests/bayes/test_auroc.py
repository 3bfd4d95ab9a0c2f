"""The AUROC against scikit-learn's, and against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from flipout.bayes._auroc import auroc

DRAWN = st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=2, max_size=300)


@given(DRAWN.filter(lambda pairs: len({positive for _, positive in pairs}) == 2))
def test_scores_with_ties_agree_with_scikit_learn(pairs: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([score / 7 for score, _ in pairs]), np.array([positive for _, positive in pairs])
    assert abs(auroc(scores, labels) - roc_auc_score(labels, scores)) < 1e-12


@pytest.mark.parametrize("digits", [1, 2, 16])
def test_many_scores_agree_with_scikit_learn(digits: int) -> None:
    generator = np.random.default_rng(0)
    labels = generator.random(20_000) < 0.3
    scores = (generator.standard_normal(20_000) + labels).round(digits)
    assert abs(auroc(scores, labels) - roc_auc_score(labels, scores)) < 1e-12


@given(DRAWN.filter(lambda pairs: len({positive for _, positive in pairs}) == 2))
def test_it_is_the_share_of_pairs_in_order(pairs: list[tuple[int, bool]]) -> None:
    scores, labels = (np.array(values) for values in zip(*pairs, strict=True))
    difference = scores[labels][:, None] - scores[~labels][None]
    assert auroc(scores, labels) == pytest.approx(float((difference > 0).mean() + (difference == 0).mean() / 2))
