"""Eval mode for a while, in one thread at a time."""

import threading

from flipout.errors import Unsupported
from flipout.nn.eval_mode import in_eval
from tests.networks import mlp


def test_each_module_gets_its_mode_back() -> None:
    model = mlp()
    model[1].eval()
    with in_eval(model), in_eval(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False, True]


def test_another_thread_is_refused_until_the_first_has_left() -> None:
    model, errors = mlp(), []

    def enter() -> None:
        try:
            with in_eval(model):
                pass
        except Unsupported as error:
            errors.append(str(error))

    with in_eval(model):
        other = threading.Thread(target=enter)
        other.start()
        other.join()
    assert len(errors) == 1
    assert "Call model.eval() before the threads start" in errors[0]
    other = threading.Thread(target=enter)
    other.start()
    other.join()
    assert len(errors) == 1
