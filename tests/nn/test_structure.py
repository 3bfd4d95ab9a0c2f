"""Changes of a converted model are followed if their meaning is clear, and refused if not."""

import copy
import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import flipout
from tests.networks import GAUSSIAN
from tests.nn.structures import X, check, converted_now, stack


@pytest.mark.parametrize("how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_a_changed_model(how):
    model = stack()
    model.fc2 = copy.deepcopy(model.fc1)
    for other in (how(model), how(how(model))):
        check(other, converted_now(model))
        other.fc3 = how(other.fc1)
        check(other, converted_now(other))


def test_a_deleted_model_frees_its_memory_at_once():
    model = stack()
    model(X)
    with flipout.hold(model):
        model(X)
    gone = weakref.ref(model.fc1)
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()


def test_a_check_takes_no_python_call_per_layer():
    counts = []
    for depth in (2, 40):
        model: Any = flipout.perturb(nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth))), GAUSSIAN)
        model(X)
        structure = model[0].flipout.roots[0][0].structure
        calls = 0

        def count(frame: Any, event: str, arg: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            known = structure.is_known(model)
        finally:
            sys.setprofile(None)
        assert known
        counts.append(calls)
    assert counts[0] == counts[1] <= 4


def test_compiled_models_are_checked_when_they_are_traced():
    torch._dynamo.reset()
    model = stack()
    fast: Any = torch.compile(model, fullgraph=True, backend="eager")
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: setattr(model.fc2, "weight", model.fc1.weight),
        lambda: setattr(model.fc2, "weight", nn.Parameter(model.fc1.weight.detach().clone())),
        lambda: setattr(model, "fc3", copy.deepcopy(model.fc1)),
    ]
    for change in changes:
        change()
        expected = converted_now(model)
        torch.manual_seed(1)
        y = fast(X)
        torch.manual_seed(1)
        torch.testing.assert_close(y, expected(X))
    prune.l1_unstructured(model.fc1, "weight", 0.5)
    with pytest.raises(Exception, match=r"fc1 .*was pruned since"):
        fast(X)


def test_copies_share_what_was_compiled():
    torch._dynamo.reset()
    model = stack()
    for _ in range(torch._dynamo.config.recompile_limit + 2):
        fast: Any = torch.compile(copy.deepcopy(model), fullgraph=True, backend="eager")
        assert not torch.equal(fast(X), fast(X))
