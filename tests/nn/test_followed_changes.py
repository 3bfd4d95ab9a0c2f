"""Layers that are added, tied or replaced have the noise of the model that they are in."""

import copy
import gc
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

import flipout
from flipout import errors
from tests.networks import GAUSSIAN, TiedLM, encoder, mlp
from tests.nn.structures import LEARNED, X, check, converted_now, stack

TOKENS = torch.arange(12).view(4, 3) % 7


def _untie(model: Any) -> None:
    model.decoder.weight = nn.Parameter(model.decoder.weight.detach().clone())


@pytest.mark.parametrize("padding", [None, 2])
def test_untied_weights_have_separate_noise(padding):
    plain = TiedLM()
    plain.embedding.padding_idx = padding
    model = flipout.perturb(plain, GAUSSIAN, where="*.weight")
    model(TOKENS)
    _untie(model)
    check(model, converted_now(model, where="*.weight"), TOKENS)
    with flipout.hold(model, seed=1):
        model(TOKENS)
        noise = [flipout.example_weights(layer)["weight"] - layer.weight for layer in (model.embedding, model.decoder)]
    assert (noise[0] != noise[1])[:, torch.arange(7) != padding].all()
    if padding is not None:
        assert not noise[0][:, padding].any()
        assert noise[1][:, padding].all()


@pytest.mark.parametrize("padding", [None, 2])
def test_tied_weights_have_one_noise(padding):
    plain = TiedLM()
    plain.embedding.padding_idx = padding
    _untie(plain)
    model = flipout.perturb(plain, GAUSSIAN, where="*.weight")
    model(TOKENS)
    model.decoder.weight = model.embedding.weight
    check(model, converted_now(model, where="*.weight"), TOKENS)
    with flipout.hold(model, seed=1):
        model(TOKENS)
        assert torch.equal(*(flipout.example_weights(layer)["weight"] for layer in (model.embedding, model.decoder)))


def _insert(model: Any) -> None:
    model.insert(1, copy.deepcopy(model[0]))


def _swap(model: Any) -> None:
    model[0], model[2] = model[2], model[0]


def _by_hand(model: Any) -> None:
    torch.manual_seed(4)
    model[2] = flipout.nn.Linear(4, 4, distribution=GAUSSIAN)


def _rooted(model: Any) -> None:
    model[2] = flipout.perturb(mlp(), GAUSSIAN)


def _delete(model: Any) -> None:
    del model[0]


def _replace_parameter(model: Any) -> None:
    model[0].weight = nn.Parameter(torch.ones(4, 4))


def _replace_after_deletion(model: Any) -> None:
    """The new layer may get the memory address of the old one."""
    copied = copy.deepcopy(model[2])
    model[2] = None
    gc.collect()
    model[2] = copied


CHANGES = [
    _insert,
    _swap,
    _by_hand,
    _rooted,
    _delete,
    _replace_parameter,
    _replace_after_deletion,
    lambda model: model.append(copy.deepcopy(model[0])),
    lambda model: model.__setitem__(2, copy.deepcopy(model[0])),
    lambda model: model.__setitem__(2, pickle.loads(pickle.dumps(model[0]))),
    lambda model: model.__setitem__(2, nn.Sequential(copy.deepcopy(model[0]), nn.Tanh())),
    lambda model: model.__setitem__(2, stack().fc2),
    lambda model: model.__setitem__(2, model[0]),
    lambda model: model[0].__setattr__("weight", copy.deepcopy(model[2].weight)),
]


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("change", range(len(CHANGES)))
def test_layers_added_replaced_or_removed(change, called):
    torch.manual_seed(3)
    model = flipout.perturb(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), GAUSSIAN)
    if called:
        model(X)
    CHANGES[change](model)
    check(model, converted_now(model))
    labels = {module.flipout.label for module in model.modules() if isinstance(module, flipout.nn.Perturbed)}
    assert labels == {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}


@pytest.mark.parametrize("called", [False, True])
def test_an_added_plain_layer_stays_plain_and_is_named(called):
    model = stack()
    if called:
        model(X)
    model.fc2 = nn.Linear(4, 4)
    with pytest.warns(flipout.errors.LeftPlain, match=r"no noise: fc2\..*where=\['fc2\.\*'\]"):
        model(X)
    check(model, converted_now(model, where=["fc1.weight", "fc3.weight"]))


def test_a_layer_of_two_models_sees_the_draw_of_the_one_that_runs():
    first, second = stack(), stack()
    second.fc2 = first.fc2
    for model in (first, second, first):
        check(model, converted_now(model))


def test_a_layer_added_to_a_time_major_transformer_has_its_batch_dim():
    model = flipout.perturb(encoder(batch_first=False), GAUSSIAN)
    model(torch.randn(5, 3, 8))
    model.layers[0].linear1 = flipout.nn.Linear(8, 16, distribution=GAUSSIAN)
    check(model, converted_now(model), torch.randn(5, 3, 8))


@pytest.mark.parametrize(
    "context", [flipout.hold, flipout.sampling, lambda model: flipout.using(model, scheme="shared")]
)
@pytest.mark.parametrize("training", [True, False])
def test_a_context_keeps_to_the_layers_it_was_opened_on(context, training):
    for change in (
        lambda m: setattr(m, "fc2", copy.deepcopy(m.fc1)),
        lambda m: setattr(m.fc2, "weight", m.fc1.weight),
    ):
        model = stack().train(training)
        with context(model), flipout.sampling(model):
            model(X)
            change(model)
            with pytest.raises(errors.Unsupported, match=r"fc2: added, tied or untied inside `hold`"):
                model(X)
        check(model, converted_now(model))


@pytest.mark.parametrize("distribution", [GAUSSIAN, LEARNED])
def test_functional_call_keeps_keys_and_ties(distribution):
    model: Any = flipout.perturb(TiedLM(), distribution, where="*.weight")
    values = {name: parameter.detach() + 1 for name, parameter in model.named_parameters()}
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    expected = []
    for each, call in ((other, other), (model, lambda x: functional_call(model, values, (x,)))):
        each(TOKENS)
        torch.manual_seed(1)
        expected.append(call(TOKENS))
    torch.testing.assert_close(*expected)
    untied = values | {"decoder.weight": values["embedding.weight"] + 1}
    torch.manual_seed(1)
    functional_call(model, untied, (TOKENS,), tie_weights=False)
    keys = [plan.roots[0][1]["weight"] for plan in (model.embedding.flipout, model.decoder.flipout)]
    assert keys[0] == keys[1]
    check(model, converted_now(model, distribution, where="*.weight"), TOKENS)


def test_replicas_of_data_parallel_are_refused_as_such():
    model = stack()
    replica: Any = model._replicate_for_data_parallel()
    for name, module in model.named_children():
        setattr(replica, name, module._replicate_for_data_parallel())
        getattr(replica, name).weight, getattr(replica, name).bias = module.weight + 0, module.bias + 0
    with pytest.raises(errors.Unsupported, match=r"nn\.DataParallel shares one draw"):
        replica(X)
    check(model, converted_now(model))
