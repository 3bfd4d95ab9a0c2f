"""Mixing a class into modules, in place."""

import copy
import pickle

from torch import nn

from flipout.peft._mixing import Mixin, mix_in


class Loud(Mixin):
    def extra_repr(self) -> str:
        return "loud, " + super().extra_repr()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_module_keeps_its_name_and_gets_the_mixin_once() -> None:
    layer = nn.Linear(2, 3)
    mix_in(Loud, layer)
    kind = type(layer)
    mix_in(Loud, layer)
    assert type(layer) is kind
    assert kind.__name__ == "Linear"
    assert isinstance(layer, nn.Linear)
    assert repr(layer).startswith("Linear(loud, in_features=2")


def test_copies_and_pickles_have_the_class() -> None:
    layer = nn.Linear(2, 3)
    mix_in(Loud, layer)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(again) is type(layer)
        assert again.weight.equal(layer.weight)
