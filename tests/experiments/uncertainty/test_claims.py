"""Separation has an honest error, and the control passes only where nothing differs."""

import torch

from flipout.experiments.uncertainty import claims


def test_the_error_of_an_auroc_is_its_spread():
    generator = torch.Generator().manual_seed(1)
    found = [
        claims.auroc(torch.randn(80, generator=generator), torch.randn(60, generator=generator) + 1)
        for _ in range(1500)
    ]
    values = torch.tensor([estimate.value for estimate in found])
    errors = torch.tensor([estimate.error for estimate in found])
    assert abs(float(values.mean()) - 0.7602) < 0.005  # Φ(1 / √2)
    assert abs(float(errors.mean() / values.std()) - 1) < 0.06
    ties = claims.auroc(torch.zeros(5), torch.zeros(7))
    assert (ties.value, ties.error) == (0.5, 0.0)


def test_halves_that_differ_are_told_apart():
    generator = torch.Generator().manual_seed(2)
    inside, same = ({key: torch.randn(500, generator=generator) for key in claims.MEASURES} for _ in range(2))
    assert claims.control(inside, same).holds
    far = {**same, "epistemic": same["epistemic"] + 1}
    assert not claims.control(inside, far).holds
    checks = claims.separated(inside, {"far": far})
    assert [check.holds for check in checks] == [False, True]


def test_without_a_wrong_answer_nothing_is_told_apart():
    labels = torch.arange(4)
    sure = {"mean": torch.eye(4), "total": torch.zeros(4), "plain": torch.eye(4)}
    assert claims.errors_found(sure, labels).value is None
    assert claims.better_than_the_mean(sure, labels).value == 0
