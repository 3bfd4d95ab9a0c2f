"""The published numbers are of the nine sets that the experiment runs."""

from flipout.experiments.data import checksums
from flipout.experiments.uci.published import PUBLISHED
from flipout.experiments.uci.trials import WIDE, UciConfig


def test_every_set_has_published_numbers_in_their_order():
    assert list(PUBLISHED) == list(checksums.UCI) == list(UciConfig().sets)
    assert WIDE in PUBLISHED


def test_errors_are_small_beside_the_numbers():
    for (rmse, rmse_error), (log_likelihood, error) in PUBLISHED.values():
        assert rmse > 0
        assert rmse_error is None or 0 < rmse_error < rmse / 10
        assert 0 < error < abs(log_likelihood) / 10
