"""Changes of a converted model whose meaning is not clear are refused, with the line that undoes them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import flipout
from flipout import errors
from flipout.bayes import kl
from tests.networks import GAUSSIAN
from tests.nn.structures import LEARNED, X, check, converted_now, stack

COMPUTED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "prune": (lambda m: prune.l1_unstructured(m, "weight", 0.5), lambda m: prune.remove(m, "weight")),
    "weight_norm": (parametrizations.weight_norm, lambda m: parametrize.remove_parametrizations(m, "weight")),
    "orthogonal": (parametrizations.orthogonal, lambda m: parametrize.remove_parametrizations(m, "weight")),
    "spectral_norm": (parametrizations.spectral_norm, lambda m: parametrize.remove_parametrizations(m, "weight")),
    "old weight_norm": (nn.utils.weight_norm, nn.utils.remove_weight_norm),
    "old spectral_norm": (nn.utils.spectral_norm, nn.utils.remove_spectral_norm),
}


USES: dict[str, Callable[[Any], Any]] = {
    "training": lambda m: m(X),
    "a layer alone": lambda m: m.fc1(X),
    "hold": lambda m: flipout.hold(m).__enter__(),
    "sampling": lambda m: flipout.sampling(m).__enter__(),
    "using": lambda m: flipout.using(m, scheme="shared").__enter__(),
    "freeze": flipout.freeze,
    "kl": kl,
    "summary": flipout.summary,
    "perturb": lambda m: flipout.perturb(m, GAUSSIAN, where="*.bias"),
}


old = pytest.mark.filterwarnings("ignore:.*(weight_norm|spectral_norm):FutureWarning")


@old
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", COMPUTED)
def test_computed_weights_are_refused_until_that_is_undone(kind, use):
    model = stack(LEARNED)
    model(X)
    compute, undo = COMPUTED[kind]
    compute(model.fc1)
    biases = [model.fc1.bias, model.fc2.bias]
    with pytest.raises(errors.Unsupported, match=r"fc1 .*its weight is perturbed, but was .*not a Parameter\. \w+ it"):
        USES[use](model)
    assert all(not any("bias" in name for name in layer.flipout.distributions) for layer in (model.fc1, model.fc2))
    assert biases == [model.fc1.bias, model.fc2.bias]
    undo(model.fc1)
    check(model, converted_now(model, LEARNED))
    assert type(model.fc1) is flipout.nn.Linear


@old
@pytest.mark.parametrize("kind", COMPUTED)
def test_the_mean_of_a_computed_weight_is_still_the_plain_network(kind):
    model, plain = stack(), flipout.freeze(stack())
    for each in (model, plain):
        torch.manual_seed(1)
        COMPUTED[kind][0](each.fc1)
    torch.testing.assert_close(model.eval()(X), plain.eval()(X))


@pytest.mark.parametrize("kind", ["prune", "weight_norm"])
def test_computed_weights_are_refused_inside_hold(kind):
    model = stack()
    with flipout.hold(model, seed=1):
        model(X)
        COMPUTED[kind][0](model.fc1)
        for use in (lambda: model(X), lambda: flipout.example_weights(model.fc1)):
            with pytest.raises(errors.Unsupported, match="fc1"):
                use()


def test_computed_weights_without_noise_are_allowed():
    model = stack(where="fc1.weight")
    prune.l1_unstructured(model.fc1, "bias", 0.5)
    parametrizations.weight_norm(model.fc2)
    with flipout.hold(model, seed=1):
        model(X)
        weight = flipout.example_weights(model.fc1)["weight"]
        hidden = torch.stack([w @ x for w, x in zip(weight, X, strict=True)]) + model.fc1.bias
        torch.testing.assert_close(model(X), model.fc3(model.fc2(hidden.tanh()).tanh()))
    assert model.fc1.bias.eq(0).sum() == 2


def test_computed_weights_of_layers_made_by_hand_are_refused():
    layer = flipout.nn.Linear(4, 3, distribution=GAUSSIAN)
    prune.l1_unstructured(layer, "weight", 0.5)
    with pytest.raises(errors.Unsupported, match=r"pruned.*prune\.remove\(layer, 'weight'\)"):
        layer(X)
    attention = flipout.nn.MultiheadAttention(4, 2, distribution=GAUSSIAN)
    parametrizations.weight_norm(attention.out_proj)
    with pytest.raises(errors.Unsupported, match=r"its out_proj\.weight is perturbed"):
        attention(X, X, X)


@pytest.mark.parametrize("use", USES)
def test_a_perturbed_parameter_that_was_taken_out_is_refused_until_it_is_back(use):
    model = stack(where=["*.weight", "fc1.bias"])
    model(X)
    before, model.fc1.bias = model.fc1.bias, None
    with pytest.raises(errors.Unsupported, match=r"fc1 \(Linear\): its bias is perturbed, but was set to None since"):
        USES[use](model)
    assert model.eval()(X).shape == (3, 4)
    model.train().fc1.bias = before
    check(model, converted_now(model, where=["*.weight", "fc1.bias"]))


def test_one_parameter_with_two_spreads_is_refused_until_they_are_tied():
    model = stack(LEARNED)
    model.fc2.weight = model.fc1.weight
    for name, use in USES.items():
        if name != "a layer alone":
            with pytest.raises(errors.InvalidArgument, match=r"model\.fc2\.weight_rho = model\.fc1\.weight_rho"):
                use(model)
    model.fc2.weight_rho = model.fc1.weight_rho
    check(model, converted_now(model, LEARNED))


@pytest.mark.parametrize("noise", [flipout.Gaussian(0.1), flipout.Rademacher(0.3)])
def test_one_parameter_with_two_noises_is_refused(noise):
    model = flipout.perturb(stack(where="fc1.weight"), noise, where="fc2.weight")
    model.fc2.weight = model.fc1.weight
    with pytest.raises(errors.Unsupported, match=r"fc1\.weight and fc2\.weight are one Parameter with two noises"):
        model(X)
    model = flipout.perturb(stack(where="fc1.weight"), GAUSSIAN, where="fc2.weight", scheme="shared")
    model.fc2.weight = model.fc1.weight
    with pytest.raises(errors.Unsupported, match="two noises"):
        model(X)
    model = flipout.perturb(stack(where="fc1.weight"), flipout.Gaussian(torch.tensor(0.3)), where="fc2.weight")
    model.fc2.weight = model.fc1.weight
    with pytest.raises(errors.Unsupported, match="two noises"):
        model(X)


def test_equal_noises_may_meet_in_one_parameter():
    model = flipout.perturb(stack(where="fc1.weight"), flipout.Gaussian(0.3), where="fc2.weight")
    model.fc2.weight = model.fc1.weight
    check(model, converted_now(model, where=["fc1.weight", "fc2.weight"]))


def test_a_perturbed_parameter_that_a_plain_layer_reads_is_refused():
    model = stack(where="fc1.weight")
    model(X)
    model.fc3.weight = model.fc1.weight
    with pytest.raises(errors.Unsupported, match=r"fc3\.weight of a Linear is the Parameter fc1\.weight.*untie"):
        model(X)
    model.fc3.weight = nn.Parameter(model.fc3.weight.detach().clone())
    check(model, converted_now(model, where="fc1.weight"))


def test_another_shape_needs_another_spread():
    model = stack(LEARNED)
    model.fc1.weight, model.fc1.in_features = nn.Parameter(torch.ones(4, 5)), 5
    with pytest.raises(errors.Unsupported, match=r"weight now has shape \(4, 5\), but its weight_rho has shape"):
        model(torch.ones(2, 5))
    model = stack()
    model.fc1.weight, model.fc1.in_features = nn.Parameter(torch.ones(4, 5)), 5
    check(model, converted_now(model), torch.ones(2, 5))
