"""Language models that are trained a little, then frozen and perturbed."""

from dataclasses import replace

import pytest
import torch

import flipout
from flipout.experiments import data
from flipout.experiments.running.runs import Run
from flipout.experiments.variance.language_pretraining import LanguagePretraining, _windows

TINY = LanguagePretraining("embedded_words", embedding=8, hidden=8, epochs=0.5, batch=4, window=5, learning_rate=1.0)


@pytest.fixture(autouse=True)
def text(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.randint(20, (600,), generator=torch.Generator().manual_seed(0))
    found = data.Text(tokens, tokens[:50], tokens[50:100], tuple("abcdefghijklmnopqrst"), "a small text")
    monkeypatch.setattr(data, "text", lambda name: found)


def test_windows_follow_each_other_in_every_stream() -> None:
    text = torch.arange(50)
    windows = list(_windows(text, TINY))
    inputs = torch.cat([words for words, _ in windows], 1)
    targets = torch.cat([following for _, following in windows], 1)
    assert torch.equal(targets, inputs + 1)  # a text of its own positions
    assert inputs.shape == (4, 10)  # of 12 words to a stream, two windows
    assert torch.equal(inputs[:, 1:], inputs[:, :-1] + 1)


def test_sequences_start_anywhere_and_predict_the_next_word(run: Run) -> None:
    draw = TINY._batches(torch.arange(30))
    words, targets = draw(2000, torch.Generator().manual_seed(0))
    assert words.shape == (2000, 5)
    assert torch.equal(targets, words + 1)
    assert set(words[:, 0].tolist()) == set(range(25))  # the last one ends with the text


@pytest.mark.parametrize("changes", [{}, {"tied": True}, {"noisy_training": True, "noise": "dropconnect"}])
def test_only_the_recurrent_weights_of_the_first_layer_are_measured(run: Run, changes: dict) -> None:
    frozen = replace(TINY, **changes).freeze(1.0, run)
    decoder, embedding = (frozen.model.get_parameter(f"{name}.weight") for name in ("decoder", "embedding"))
    assert (decoder is embedding) == changes.get("tied", False)
    measured = [name for name, parameter in frozen.model.named_parameters() if parameter.requires_grad]
    assert measured == ["lstm.weight_hh_l0"]
    noisy = {row.parameter: row.noise for row in flipout.summary(frozen.model).rows if row.noise}
    assert noisy.keys() == {"lstm.weight_hh_l0", "lstm.weight_hh_l1"}
    kind = "DropConnect(p=0.5)" if changes.get("noise") else "MultiplicativeGaussian(std=1.0)"
    assert set(noisy.values()) == {kind}
    assert ("under that noise" in frozen.setting) == bool(changes.get("noisy_training"))
    assert 1 < float(frozen.reached["training perplexity"]) < 100
    words, targets = frozen.data(3, torch.Generator().manual_seed(1))
    logits, _ = frozen.model.run(words, None)  # pyright: ignore[reportCallIssue]
    assert frozen.loss(logits, targets).isfinite()
