"""Targets of another shape or out of range are refused: nothing is broadcast."""

import math

import pytest
import torch

from flipout.bayes._targets import check_range, check_target_shape, check_whole
from flipout.errors import InvalidInput


def test_shapes() -> None:
    output = torch.zeros(3, 1)
    check_target_shape("Gaussian", output, output, output.shape, "a number each")
    with pytest.raises(InvalidInput, match=r"target of shape \(3,\).*needs targets of shape \(3, 1\).*Squeeze it"):
        check_target_shape("Gaussian", output, torch.zeros(3), output.shape, "a number each", "Squeeze it")


def test_ranges() -> None:
    target = torch.tensor([0, 2, -100])
    check_range("Categorical", target, 0, 2, ignored=-100)
    with pytest.raises(InvalidInput, match="targets from -100 to 2; expected them from 0 to 2"):
        check_range("Categorical", target, 0, 2)
    with pytest.raises(InvalidInput, match="expected counts ≥ 0"):
        check_range("Poisson", target, 0, math.inf)
    check_range("Poisson", target[:0], 0, math.inf)
    with pytest.raises(InvalidInput, match="targets from nan"):
        check_range("Poisson", torch.tensor([torch.nan]), 0, math.inf)


def test_counts_are_whole() -> None:
    check_whole("Counts", torch.tensor([0.0, 3.0, 2.0**40]))
    check_whole("Counts", torch.tensor([1, 2]))
    with pytest.raises(InvalidInput, match=r"Counts: a target of 0\.5; expected counts"):
        check_whole("Counts", torch.tensor([1.0, 0.5, -0.5]))
