"""Which Parameters: globs, lists, predicates, unknown layers, refusals; a refused call changes nothing."""

import re
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import errors
from tests.known import Custom, PerturbedCustom, Unknown, perturbed
from tests.networks import GAUSSIAN, TiedLM, encoder, mlp, same_state, state


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, ["0.weight", "2.weight"]),
        ("*", ["0.weight", "0.bias", "2.weight", "2.bias"]),
        ("*.bias", ["0.bias", "2.bias"]),
        (["0.*", "2.bias"], ["0.weight", "0.bias", "2.bias"]),
        ((name for name in ["2.weight"]), ["2.weight"]),
        (lambda name: name.startswith("2"), ["2.weight", "2.bias"]),
    ],
)
def test_where(where, expected):
    assert perturbed(flipout.perturb(mlp(), GAUSSIAN, where=where)) == expected


def test_default_leaves_embeddings_biases_and_norms_alone():
    model = nn.Sequential(nn.Embedding(5, 8), encoder(layers=1), nn.BatchNorm1d(3), nn.Conv1d(3, 3, 1))
    assert [name.partition("layers.0.")[2] or name for name in perturbed(flipout.perturb(model, GAUSSIAN))] == [
        "self_attn.in_proj_weight",
        "self_attn.out_proj.weight",
        "linear1.weight",
        "linear2.weight",
        "3.weight",
    ]
    assert len(perturbed(flipout.perturb(encoder(layers=1), GAUSSIAN, where="*"))) == 12


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nothing.*", r"'nothing\.\*' matches no Parameter\. There are single, known\.weight"),
        (["known.weight", "knwon.bias"], r"'knwon\.bias' matches no Parameter"),
        ("known", r"'known' matches no Parameter\. 'known' is a layer: write where='known\.\*'\. There are single"),
        (lambda name: False, r"leaves nothing to perturb\. Its Parameters are"),
        ([], r"leaves nothing to perturb"),
    ],
)
def test_names_of_nothing_are_refused(where, message):
    model = Unknown()
    before = state(model)
    with pytest.raises(errors.UnknownParameter, match=message):
        flipout.perturb(model, GAUSSIAN, where=where)
    assert same_state(before, state(model))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("bilinear.weight", ["bilinear.weight"]),
        ("prelu.*", ["prelu.weight"]),
        (["known.weight", "custom.gain"], ["known.weight", "custom.gain"]),
        ("single", ["single"]),
        (lambda name: "gain" in name, ["custom.gain"]),
    ],
)
def test_parameters_of_any_module_can_be_named(where, expected):
    model = flipout.perturb(Unknown(), GAUSSIAN, where=where)
    assert perturbed(model) == expected
    kinds = {"bilinear": nn.Bilinear, "prelu": nn.PReLU, "custom": Custom, "known": nn.Linear}
    assert all(isinstance(module, kinds[name]) for name, module in model.named_children())
    assert {type(module) for module in flipout.freeze(model).children()} == set(kinds.values())


def test_a_parameter_that_an_unknown_layer_uses_too_is_noisy_there():
    model: Any = nn.ModuleDict({"a": nn.Linear(4, 3), "b": Custom()})
    model["b"].gain = model["a"].weight
    flipout.perturb(model, GAUSSIAN)
    model.forward = lambda x: (model["a"](x) - model["a"].bias, model["b"](x))
    called, read = model(torch.randn(5, 4))
    torch.testing.assert_close(called, read)


def test_a_model_without_known_layers():
    with pytest.raises(errors.UnknownParameter, match="finds nothing to perturb"):
        flipout.perturb(nn.Sequential(nn.Tanh()), GAUSSIAN)
    with pytest.raises(
        errors.UnknownParameter, match=r"It chooses the weights of known layers \(Linear, Conv1d.*'gain'"
    ):
        flipout.perturb(Custom(), GAUSSIAN)
    with pytest.raises(errors.NotPerturbed, match="no perturbed layers"):
        flipout.perturb(mlp())


@pytest.mark.parametrize(
    ("layers", "where"),
    [
        ([nn.Embedding(5, 4)], "weight"),
        ([nn.LayerNorm(4)], "weight"),
        ([nn.Tanh(), nn.Embedding(5, 4)], "1.weight"),
        ([nn.Embedding(5, 4), nn.LayerNorm(4)], "*.weight"),
        ([nn.Embedding(5, 4), nn.LayerNorm(4), nn.PReLU()], ["0.weight", "1.weight"]),
    ],
    ids=str,
)
def test_what_is_perturbed_only_where_named_is_said_to_be(layers, where):
    model = layers[0] if len(layers) == 1 else nn.Sequential(*layers)
    with pytest.raises(
        errors.UnknownParameter, match=re.escape(f"flipout.perturb(model, distribution, where={where!r})")
    ):
        flipout.perturb(model, GAUSSIAN)
    assert all(name.endswith("weight") for name in perturbed(flipout.perturb(model, GAUSSIAN, where=where)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"where": 3},
        {"where": ["0.weight", 3]},
        {"scheme": "flip"},
        {"distribution": 0.1},
        {"distribution": None, "where": "*"},
        {"batch_dim": -1},
        {"batch_dim": "0"},
        {"batch_dim": {"0": -1}},
        {"batch_dim": {"fc*": 1}},
        {"distribution": flipout.DropConnect(0.2)},
        {"distribution": flipout.DropConnect(0.5), "scheme": "local_reparam"},
        {"distribution": flipout.Gaussian({"0.*": 0.1})},
    ],
)
def test_refused_arguments_change_nothing(arguments):
    model = mlp()
    before = state(model)
    with pytest.raises(errors.FlipoutError):
        flipout.perturb(model, **{"distribution": GAUSSIAN, **arguments})
    assert same_state(before, state(model))


PARAMETRISED = {
    "weight_norm": lambda m: nn.utils.parametrizations.weight_norm(m),
    "spectral_norm": lambda m: nn.utils.parametrizations.spectral_norm(m),
    "old weight_norm": lambda m: nn.utils.weight_norm(m),
    "old spectral_norm": lambda m: nn.utils.spectral_norm(m),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("where", [None, "1.*", "*", "*.weight"])
@pytest.mark.parametrize("kind", PARAMETRISED)
def test_parametrised_layers_are_refused_by_name(kind, where):
    model = nn.Sequential(nn.Linear(4, 4), PARAMETRISED[kind](nn.Linear(4, 4)))
    before = state(model)
    with pytest.raises(errors.Unsupported, match=r"1\.weight is parametrised \(weight_norm, spectral_norm"):
        flipout.perturb(model, GAUSSIAN, where=where)
    assert same_state(before, state(model))
    flipout.perturb(model, GAUSSIAN, where="0.weight")
    model(torch.randn(2, 4)).sum().backward()


def test_a_parametrised_embedding_is_refused_only_where_named():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Embedding(5, 4)), nn.Linear(4, 3))
    with pytest.raises(errors.Unsupported, match=r"0\.weight is parametrised"):
        flipout.perturb(model, GAUSSIAN, where="*.weight")
    assert perturbed(flipout.perturb(model, GAUSSIAN)) == ["1.weight"]


@pytest.mark.parametrize("where", [None, "0.weight"])
def test_lazy_modules_are_refused(where):
    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 3))
    before = list(model[0].__dict__)
    with pytest.raises(errors.Unsupported, match=r"0\.weight has no shape yet \(a lazy module\)"):
        flipout.perturb(model, GAUSSIAN, where=where)
    assert list(model[0].__dict__) == before
    assert not model._forward_pre_hooks
    model(torch.randn(2, 4))
    assert perturbed(flipout.perturb(model, GAUSSIAN)) == ["0.weight", "1.weight"]


@pytest.mark.parametrize("option", [{"sparse": True}, {"max_norm": 1.0}, {"scale_grad_by_freq": True}])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_options_of_embeddings_are_refused_by_name(kind, option):
    model = nn.Sequential(nn.Linear(2, 2), kind(5, 3, **option))
    before = state(model)
    with pytest.raises(errors.Unsupported, match=f"1: {next(iter(option))}="):
        flipout.perturb(model, GAUSSIAN, where="*.weight")
    assert same_state(before, state(model))
    with pytest.raises(errors.Unsupported, match=next(iter(option))):
        getattr(flipout.nn, kind.__name__)(5, 3, **option, distribution=GAUSSIAN, where="weight")


def test_local_reparam_of_a_tied_weight_is_refused():
    model = TiedLM()
    before = state(model)
    with pytest.raises(errors.WeightReused, match=r"embedding\.weight and decoder\.weight are one Parameter"):
        flipout.perturb(model, GAUSSIAN, scheme="local_reparam", where="*.weight")
    assert same_state(before, state(model))
    by_hand = nn.Sequential(*(flipout.nn.Linear(3, 3, distribution=GAUSSIAN, scheme="local_reparam") for _ in range(2)))
    by_hand[1].weight = by_hand[0].weight
    with pytest.raises(errors.WeightReused):
        flipout.perturb(by_hand)


def test_register(monkeypatch):
    from flipout import _where as where

    monkeypatch.setattr(where, "_LAYERS", dict(where._LAYERS))
    with pytest.raises(errors.InvalidArgument, match="subclass both"):
        flipout.register(Custom, flipout.nn.Linear)
    flipout.register(Custom, PerturbedCustom)
    model = flipout.perturb(nn.Sequential(Custom()), flipout.MeanField(std=0.2))
    x = torch.randn(5, 4)
    with flipout.hold(model):
        weights = flipout.example_weights(model[0])["gain"] if model(x) is not None else None
        torch.testing.assert_close(model(x), torch.einsum("noi,ni->no", weights, x))
    assert type(flipout.freeze(model)[0]) is Custom


def test_a_name_taken_by_someone_else(monkeypatch):
    model = mlp()
    model[2].weight_rho = 1.0  # pyright: ignore
    before = state(model)
    with pytest.raises(errors.Unsupported, match="weight_rho"):
        flipout.perturb(model, flipout.MeanField())
    assert same_state(before, state(model))
