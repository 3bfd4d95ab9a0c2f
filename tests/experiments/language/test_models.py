"""Models of the language tables: sizes, initial weights, and the gradients of their rows."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import flipout
from flipout.errors import InvalidArgument
from flipout.experiments.language.models import Dropout, RegularizedModel, Shape
from flipout.experiments.language.rows import CHARACTERS, LARGE, WORDS, Row
from flipout.experiments.language.work import LanguageConfig
from flipout.experiments.registry import EXPERIMENTS
from flipout.nn.models import perturbed_layers

SMALL = Shape(embedding=6, hidden=6, layers=2)
EVERY = [*((row, Shape(0, 5, 1)) for row in CHARACTERS), *((row, SMALL) for row in (*WORDS, *LARGE))]


def paper(name: str) -> LanguageConfig:
    config = EXPERIMENTS[name].config("paper")
    assert isinstance(config, LanguageConfig)
    return config


def row_named(rows: tuple[Row, ...], name: str) -> Row:
    return next(row for row in rows if row.name == name)


@pytest.mark.parametrize(
    ("experiment", "tokens", "row", "size"),
    [
        ("ptb-char", 50, row_named(CHARACTERS, "flipout"), 4_258_050),
        ("ptb-word", 10_000, row_named(WORDS, "wd-flipout"), 19_780_400),
        ("ptb-word", 10_000, row_named(WORDS, "wd-flipout-tied"), 13_280_400),
        ("ptb-large-batch", 10_000, row_named(LARGE, "wd"), 24_221_600),
    ],
)
def test_models_have_the_papers_sizes(experiment, tokens, row, size):
    with torch.device("meta"):
        model = RegularizedModel(tokens, paper(experiment).shape, row.drop, row.lstm, row.tied)
    assert model.size == size


@pytest.mark.parametrize(("row", "shape"), EVERY, ids=lambda value: getattr(value, "name", ""))
def test_every_row_goes_on_from_its_state_and_has_all_gradients(row, shape):
    model = row.model(9, shape, 3).train()
    output = model(torch.randint(9, (4, 5)), model.start(4))
    assert output.logits.shape == (4, 5, 9)
    assert [part.shape for part in output.state[-1]] == [part.shape for part in model.start(4)[-1]]
    output.logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.eval()
    words = torch.randint(9, (4, 6))
    whole = model(words, model.start(4)).logits
    first = model(words[:, :2], model.start(4))
    torch.testing.assert_close(torch.cat((first.logits, model(words[:, 2:], first.state).logits), 1), whole)


def test_models_of_one_seed_begin_alike():
    first, second = (
        dict(row_named(WORDS, name).model(9, SMALL, 3).named_parameters()) for name in ("wd-flipout", "gal")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = dict(row_named(WORDS, "wd").model(9, SMALL, 4).named_parameters())
    assert not torch.equal(first["decoder.weight"], other["decoder.weight"])


def test_characters_begin_orthogonal_with_open_forget_gates():
    model = row_named(CHARACTERS, "unregularised").model(7, Shape(0, 12, 1, orthogonal=True, forget_bias=1.0), 0)
    layer: Any = model.layers[0]
    for gate in layer.weight_hh_l0.chunk(4):
        torch.testing.assert_close(gate @ gate.T, torch.eye(12))
    bias = (layer.bias_ih_l0 + layer.bias_hh_l0).view(4, 12)
    assert torch.equal(bias, torch.tensor([0.0, 1.0, 0.0, 0.0]).unsqueeze(1).expand(4, 12))


def test_a_tied_decoder_needs_an_embedding():
    with pytest.raises(InvalidArgument, match=r"not one-hot input: give shape\.embedding ≥ 1"):
        RegularizedModel(9, Shape(0, 5, 1), Dropout(), tied=True)


@pytest.mark.parametrize("row", [*WORDS[:5], *LARGE, *CHARACTERS[:3]], ids=lambda row: f"{row.name}-{row.title}")
def test_gradients_are_those_of_plain_torch_with_each_examples_weights(row):
    shape = Shape(0, 5, 1) if row in CHARACTERS else SMALL
    model = replace(row, drop=Dropout()).model(9, shape, 3).double()
    words, targets = torch.randint(9, (3, 7)), torch.randint(9, (3, 7))
    with flipout.hold(model, seed=5):
        loss = cross_entropy(model(words, model.start(3)).logits.flatten(0, 1), targets.flatten())
        seen = {
            f"{label}.{name}": weight.detach()
            for label, layer in perturbed_layers(model).items()
            for name, weight in flipout.example_weights(layer).items()
        }
    loss.backward()
    plain = RegularizedModel(9, shape, Dropout(), tied=row.tied).double()
    leaves = {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}
    losses = []
    for n in range(3):
        weights = {
            name: leaf * (seen[name][n] / leaf.detach()) if name in seen else leaf for name, leaf in leaves.items()
        }
        output = functional_call(plain, weights, (words[n : n + 1], plain.start(1)), tie_weights=True)
        losses.append(cross_entropy(output.logits.flatten(0, 1), targets[n]))
    reference = torch.stack(losses).mean()
    reference.backward()
    torch.testing.assert_close(loss, reference)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, leaves[name].grad)
