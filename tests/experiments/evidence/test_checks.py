"""The same loss under every scheme is theory, and a biased scheme fails it."""

import torch

from flipout.experiments.evidence.checks import same_loss
from flipout.experiments.running.results import MUST_HOLD


def test_theory_is_refused_where_a_scheme_is_biased_or_flipout_is_noisier():
    generator = torch.Generator().manual_seed(1)
    drawn = {name: torch.randn(200, generator=generator).tolist() for name in ("shared", "flipout")}
    assert [check.holds for check in same_loss(drawn)] == [True, True]
    biased = {**drawn, "flipout": [value + 1 for value in drawn["flipout"]]}
    assert [check.holds for check in same_loss(biased)] == [False, True]
    noisy = {**drawn, "flipout": [2 * value for value in drawn["flipout"]]}
    assert [check.holds for check in same_loss(noisy)] == [True, False]
    assert {check.kind for check in same_loss(drawn)} == {MUST_HOLD}
