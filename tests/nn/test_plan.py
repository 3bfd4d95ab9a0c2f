"""Keys of Parameters, and the contexts that a plan sees."""

import threading

import pytest

import flipout
from flipout.errors import Unsupported
from flipout.nn.plan import parameter_key
from tests.networks import GAUSSIAN, mlp


def test_a_key_is_of_the_name_alone() -> None:
    assert parameter_key("layer.weight") == 2265958919352933173  # must never change: saved seeds rely on it
    keys = {parameter_key(f"layers.{i}.weight") for i in range(1000)}
    assert len(keys) == 1000
    assert max(keys) < 2**61


def test_the_innermost_context_decides() -> None:
    model = flipout.perturb(mlp(), GAUSSIAN)
    plan = model[0].flipout
    assert (plan.scheme.name, plan.held, plan.sampled) == ("flipout", None, False)
    with flipout.using(model, scheme="shared"):
        assert (plan.scheme.name, plan.sampled) == ("shared", False)
        with flipout.using(model, scheme="independent"), flipout.hold(model):
            assert plan.scheme.name == "independent"
            assert plan.held is not None
            assert plan.sampled
        assert (plan.scheme.name, plan.held) == ("shared", None)
    with flipout.sampling(model[2]):
        assert not plan.sampled


def test_a_thread_outside_is_refused_while_another_is_inside() -> None:
    model, said = flipout.perturb(mlp(), GAUSSIAN), []

    def look() -> None:
        with pytest.raises(Unsupported, match="called in a thread without a context") as caught:
            _ = model[0].flipout.sampled
        said.append(str(caught.value))

    with flipout.hold(model):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert said
    assert said[0].startswith("0:")
