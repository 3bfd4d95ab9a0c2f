"""An operation in which no operand has the examples is refused at its line."""

import re
from typing import Any

import pytest
import torch

import flipout
from flipout import errors
from tests.networks import GAUSSIAN
from tests.nn.readings import IN, REFUSED, N, Reader, T


@pytest.mark.parametrize("scheme", ["flipout", "independent"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_result_for_each_example_is_refused_at_that_line(name: str, scheme: Any) -> None:
    read, message = REFUSED[name]
    model = flipout.perturb(Reader(read), GAUSSIAN, scheme=scheme, where="*")
    with pytest.raises(errors.UnservedRead, match=message) as caught:
        model(torch.randn(N, T, IN))
    said = str(caught.value)
    line = read.__code__.co_firstlineno
    assert re.search(rf"{re.escape(read.__code__.co_filename)}:({line}|{line + 1}) ", said), said
    assert "where=" in said
    assert f"'*': '{scheme}'" in said
