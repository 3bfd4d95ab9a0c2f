"""What `predict` counts as inputs, and what it says to those who give something else than tensors."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import flipout
from flipout._model_calls import model_call
from flipout.bayes import ELBO, Normal, predict
from flipout.bayes._input_count import count_inputs
from flipout.errors import InvalidArgument, InvalidInput

X = torch.randn(88, 4)


@pytest.fixture
def elbo() -> ELBO:
    return ELBO(flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=Normal())), "categorical", num_data=88)


class Frame:
    """Like a table of pandas."""

    def to_numpy(self) -> Any:
        return X.numpy()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X.tolist(), r"a list of 88 lists given, .*Write torch\.as_tensor\(x\)\."),
        (X[0].tolist(), r"a list of 4 floats given, .*Write torch\.as_tensor\(x\)\."),
        ([], "an empty list given"),
        (3.0, r"of type float given, .*torch\.as_tensor\(…\)"),
        (["some", "texts"], r"a list of 2 strs given, .*tokenizer\(x, return_tensors=\"pt\""),
        (
            {"input_ids": [[1, 2], [3, 4]], "mask": [1, 1]},
            r"a dict of 'input_ids', 'mask' given.*return_tensors=\"pt\"",
        ),
        (X.double().numpy(), r"argument 0 is of type numpy\.ndarray; .*Write torch\.as_tensor\(x\)\.float\(\)\."),
        (np.arange(4), r"Write torch\.as_tensor\(x\)\.$"),
        ([X.numpy(), X.numpy()], r"argument 0 is of type numpy\.ndarray; .*Write torch\.as_tensor\(…\)\.float\(\)"),
        (Frame(), r"Write torch\.as_tensor\(x\.to_numpy\(\)\)"),
        (
            DataLoader(TensorDataset(X), 8),
            r"is of type torch.*\.DataLoader; .*torch\.cat\(\[inputs for inputs, \*_ in loader\]\)",
        ),
        (object(), r"is of type object; .*Give the inputs as a tensor"),
        ((X, X[:3]), r"argument 1 is a tensor of shape \(3, 4\); .*here 88, .*Expand a tensor"),
        (X[:0], "there are no inputs"),
    ],
)
def test_what_is_no_batch_of_tensors_is_described_in_few_words(elbo: ELBO, x: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        predict(elbo, x)
    assert len(str(caught.value)) < 500


def test_what_the_messages_propose_serves(elbo: ELBO) -> None:
    loader = DataLoader(TensorDataset(X, torch.zeros(88)), 8)
    for x in (
        torch.as_tensor(X.tolist()),
        torch.as_tensor(X.double().numpy()).float(),
        torch.cat([inputs for inputs, *_ in loader]),
    ):
        assert len(predict(elbo, x, samples=4).mean) == 88


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize(
    "make", [list, tuple, lambda values: {str(i): i for i in values}], ids=["list", "tuple", "dict"]
)
def test_no_message_grows_with_what_was_given(make: Any, size: int) -> None:
    x = make(range(size))
    with pytest.raises(InvalidInput) as caught:
        count_inputs(x, model_call(x), 0)
    assert len(str(caught.value)) < 500


def test_arguments_that_are_passed_on_are_not_counted() -> None:
    x = {"x": X, "scale": 2.0, "mode": "fast", "mask": None}
    assert count_inputs(x, model_call(x), 0) == 88
    assert count_inputs(x, model_call(x), 1) == 4


def test_an_ensemble_is_sent_to_from_outputs(elbo: ELBO) -> None:
    with pytest.raises(InvalidArgument, match=r"a list of 2 models .*from_outputs\(torch\.stack\(\[model\(x\) for"):
        predict([elbo.model, elbo.model], X)  # pyright: ignore[reportArgumentType]
