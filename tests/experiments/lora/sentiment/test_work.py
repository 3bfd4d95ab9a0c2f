"""The data of the work, and its two comparisons of models."""

import torch

from flipout.experiments.lora.sentiment import work
from flipout.experiments.lora.sentiment.ratings import KINDS, SHIFTS, padded


def test_the_parts_of_the_tweets_do_not_overlap(config, run, monkeypatch) -> None:
    def numbered(kind: str, tokenizer: object):
        first = 1000 * KINDS.index(kind)
        return padded([[n] for n in range(first, first + 50)], [0.0] * 50, "here")

    monkeypatch.setattr(work, "vader", numbered)
    monkeypatch.setattr(work, "encoder", lambda *_: (None, None))
    data = work._data(type(config)(**{**vars(config), "model": "minilm"}), run)
    assert {name: len(part) for name, part in data.items()} == {
        "train": 24,
        "valid": 8,
        "test": 12,
        **dict.fromkeys(SHIFTS, 12),
    }
    tweets = torch.cat([data[name].input_ids for name in ("train", "valid", "test")]).flatten()
    assert len(tweets.unique()) == 44
    assert int(tweets.max()) < 50
    assert all(int(data[shift].input_ids.min()) >= 1000 * KINDS.index(shift) for shift in SHIFTS)


def test_the_merged_and_the_loaded_model_are_the_same(config, run) -> None:
    data = work._data(config, run)
    study = work._study(config, data, run)
    same = work._same(study)
    assert same["reloaded"] == 0.0
    assert 0 <= same["merged"] <= 1e-4
    (free,) = study.of_row("training-free", 0)
    assert free.is_sampled
    assert free.outputs(data["test"]).std(0).max() > 0
