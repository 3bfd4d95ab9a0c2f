"""Models of the language tables: states, ties, and the gradients of their rows."""

from dataclasses import replace

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import flipout
from flipout.errors import InvalidArgument
from flipout.experiments.language.models import DropoutRates, RegularizedModel, Shape
from flipout.experiments.language.rows import CHARACTERS, LARGE, WORDS
from flipout.nn.models import perturbed_layers
from tests.experiments.language.toys import SMALL

EVERY = [*((row, Shape(0, 5, 1)) for row in CHARACTERS), *((row, SMALL) for row in (*WORDS, *LARGE))]


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


def test_a_tied_decoder_needs_an_embedding():
    with pytest.raises(InvalidArgument, match=r"not one-hot input: give shape\.embedding ≥ 1"):
        RegularizedModel(9, Shape(0, 5, 1), DropoutRates(), tied=True)


@pytest.mark.parametrize("row", [*WORDS[:5], *LARGE, *CHARACTERS[:3]], ids=lambda row: f"{row.name}-{row.title}")
def test_gradients_are_those_of_plain_torch_with_each_examples_weights(row):
    shape = Shape(0, 5, 1) if row in CHARACTERS else SMALL
    model = replace(row, drop=DropoutRates()).model(9, shape, 3).double()
    words, targets = torch.randint(9, (3, 7)), torch.randint(9, (3, 7))
    with flipout.hold(model, seed=5):
        loss = cross_entropy(model(words, model.start(3)).logits.flatten(0, 1), targets.flatten())
        seen = {
            f"{label}.{name}": weight.detach()
            for label, layer in perturbed_layers(model).items()
            for name, weight in flipout.example_weights(layer).items()
        }
    loss.backward()
    plain = RegularizedModel(9, shape, DropoutRates(), tied=row.tied).double()
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
