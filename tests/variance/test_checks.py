"""What cannot be measured is refused by name."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import flipout
from tests.variance.measured import small


def test_a_model_loss_or_data_set_that_cannot_be_measured_is_refused() -> None:
    sums = partial(nn.functional.cross_entropy, reduction="sum")
    single = partial(nn.functional.cross_entropy, reduction="none")
    for options, message in (
        ({"train": True}, "1 .BatchNorm1d. is in training mode"),
        ({"loss": sums}, "the mean over the examples"),
        ({"loss": single}, "the mean over the examples"),
        ({"loss": lambda output, _: output.mean() * torch.nan}, "expected a finite number"),
        (
            {"loss": "categorical"},
            r"loss: 'categorical' given; expected a function .*cross_entropy.*-likelihood\.log_prob",
        ),
        ({"loss": torch.zeros(3)}, r"loss: <class 'torch.Tensor'> given; expected a function"),
        ({"data": (torch.randn(9, 4), torch.randint(3, (8,)))}, "expected .inputs, targets., tensors of one length"),
        ({"data": torch.randn(9, 4)}, "expected .inputs, targets., tensors of one length"),
        ({"data": (np.zeros((9, 4)), np.zeros(9))}, "expected .inputs, targets., tensors of one length"),
    ):
        with pytest.raises(flipout.errors.InvalidArgument, match=message):
            small(**options)
