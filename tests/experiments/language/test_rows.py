"""Rows build the paper's models, and rows of one seed begin alike."""

from typing import Any

import pytest
import torch

import flipout
from flipout.experiments.language.models import RegularizedModel, Shape
from flipout.experiments.language.rows import CHARACTERS, LARGE, WORDS, Row
from tests.experiments.language.toys import SMALL, paper


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


READINGS = [row for row in WORDS if row.reading == "wd-flipout"]


@pytest.mark.parametrize("row", READINGS, ids=lambda row: row.name)
def test_readings_of_wd_with_flipout_begin_as_the_row_does_and_train(row):
    first, model = row_named(WORDS, "wd-flipout").model(9, SMALL, 3), row.model(9, SMALL, 3)
    for (name, weight), (_, other) in zip(first.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(weight, other), name
    tokens = torch.randint(9, (4, 7), generator=torch.Generator().manual_seed(0))
    model(tokens, model.start(4)).logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_stream_keeps_its_signs_over_all_windows():
    """With one base at a time, ΔŴ ∘ r sᵀ differs from window to window by the base alone: ΔŴ₁ ∘ ΔŴ₂ has rank one."""
    row = row_named(WORDS, "wd-flipout-kept-signs")
    for reading, expected in ((row, True), (row_named(WORDS, "wd-flipout"), False)):
        model = reading.model(9, SMALL, 0).train()
        signs = []
        for _ in range(2):
            with flipout.hold(model):
                model(torch.zeros(2, 3, dtype=torch.long), model.start(2))
                layer: Any = model.layers[0]
                weights = flipout.example_weights(layer)["weight_hh_l0"].detach()
            delta = (weights / layer.weight_hh_l0.detach() - 1).round()
            signs.append(delta[0] * delta[1])  # the base cancels
        assert torch.equal(*signs) is expected


def test_the_raw_weight_is_twice_the_mean_in_eval_mode_alone():
    doubled = row_named(WORDS, "wd-flipout-raw-weight").model(9, SMALL, 0)
    plain = row_named(WORDS, "wd-flipout").model(9, SMALL, 0)
    with torch.no_grad():
        for layer in plain.layers:
            layer.weight_hh_l0.mul_(2)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    tokens = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(
        doubled.eval()(tokens, doubled.start(1)).logits, plain.eval()(tokens, plain.start(1)).logits
    )


def test_words_can_be_dropped_for_each_stream():
    model = row_named(WORDS, "wd-flipout-example-words").model(9, SMALL, 0)
    assert model.embedding is not None
    tokens = torch.arange(9).repeat(2).expand(4000, -1)
    torch.manual_seed(0)
    dropped = model._encoded(tokens)
    kept = dropped.abs().sum(2) > 0
    assert torch.equal(kept[:, :9], kept[:, 9:])  # wherever a word occurs in its stream
    assert (kept[:, :9].float().mean(0) - 0.9).abs().max() < 0.02  # 4 standard errors
    assert len(kept.unique(dim=0)) > 50  # of 2⁹ patterns
    ratio = dropped[kept] / model.embedding(tokens)[kept]
    torch.testing.assert_close(ratio, torch.full_like(ratio, 1 / 0.9))
    assert torch.equal(model.eval()._encoded(tokens), model.embedding(tokens))


def test_other_beginnings_of_characters():
    row = row_named(CHARACTERS, "unregularised")
    stacked: Any = row.model(7, Shape(0, 12, 1, orthogonal=True, stacked=True), 0).layers[0]
    torch.testing.assert_close(stacked.weight_hh_l0.T @ stacked.weight_hh_l0, torch.eye(12))
    without = row.model(7, Shape(0, 12, 1, output_bias="none"), 0)
    assert without.decoder.bias is None
    assert without(torch.zeros(2, 3, dtype=torch.long), without.start(2)).logits.shape == (2, 3, 7)
    uniform = row.model(7, Shape(0, 12, 1, output_bias="uniform"), 0).decoder.bias
    assert 0 < uniform.abs().max() <= 12**-0.5
