"""Every row trains, answers, and comes back from what it left."""

import math

import pytest
import torch
from torch.distributions import Normal

from flipout.experiments.lora.rows import BAYESIAN
from flipout.experiments.lora.sentiment.answers import RatingLearner, scored_together
from flipout.experiments.lora.sentiment.ratings import padded, synthetic


def ratings(count: int = 24):
    return synthetic(count, kind="tweets", noise=0.0, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("row", ["lora", "dropout", *BAYESIAN])
def test_a_row_learns_and_comes_back(config, run, row: str) -> None:
    data = ratings()
    learner = RatingLearner(config, row, f"{row}.0", run)
    learned = run.tensors("learned", lambda: learner.train(data))
    assert any("head" in name for name in learned)
    assert (row in BAYESIAN) == any(name.endswith("_rho") for name in learned)
    outputs = learner.outputs(data)
    assert outputs.shape == (1 if row == "lora" else 4, 24, 2)
    assert (row == "lora") == bool((outputs == outputs[:1]).all())
    again = RatingLearner(config, row, f"{row}.0", run)
    again.restore(learned)
    torch.testing.assert_close(again.outputs(data), outputs)


def test_outputs_are_in_the_order_of_the_sentences(config, run) -> None:
    learner = RatingLearner(config, "lora", "lora.0", run)
    torch.nn.init.normal_(learner.model.head.weight)
    data = padded([[1, *range(30, 30 + length), 2] for length in (6, 2, 4, 3)], [0.0] * 4, "here")
    learner.model.eval()
    with torch.no_grad():
        expected = torch.cat([learner.model(**data[[row]].inputs()) for row in range(4)])
    torch.testing.assert_close(learner.outputs(data)[0], expected)


def test_chunks_see_one_draw(config, run) -> None:
    found = []
    for chunk in (256, 5):
        learner = RatingLearner(type(config)(**{**vars(config), "chunk": chunk}), "flipout", "flipout.0", run)
        torch.manual_seed(0)
        for name, parameter in learner.trained.items():
            if "lora_B" in name or "head" in name:
                torch.nn.init.normal_(parameter)
        learner.model.eval()
        found.append(learner.outputs(ratings()))
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)
    assert float(found[0].std(0).max()) > 1e-2


def test_scores_are_those_of_the_mixture(config, run, monkeypatch) -> None:
    outputs = torch.tensor([[[0.0, 0.0], [1.0, 0.0]], [[2.0, math.log(2.0)], [1.0, 0.0]]])
    learner = RatingLearner(config, "lora", "lora.0", run)
    monkeypatch.setattr(learner, "outputs", lambda _: outputs)
    found = scored_together([learner], padded([[1], [1]], [3.0, 1.0], "here"))
    densities = [
        (Normal(0.0, 1.0).log_prob(torch.tensor(3.0)).exp() + Normal(2.0, 2.0).log_prob(torch.tensor(3.0)).exp()) / 2,
        Normal(1.0, 1.0).log_prob(torch.tensor(1.0)).exp(),
    ]
    assert found["nll"] == pytest.approx(-float(torch.stack(densities).log().mean()), rel=1e-5)
    assert found["rmse"] == pytest.approx(math.sqrt(2.0))  # of means 1 and 1
    assert found["coverage"] in (0.5, 1.0)
