"""Every row trains, answers with probabilities, and comes back from what it left."""

from dataclasses import replace

import pytest
import torch

import flipout
from flipout.experiments.lora.answers import QuestionLearner
from flipout.experiments.lora.questions import synthetic
from flipout.experiments.lora.rows import BAYESIAN, AdapterStudy


def questions(count: int = 24):
    return synthetic(count, noise=0.0, unseen=False, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("row", ["lora", "dropout", *BAYESIAN])
def test_a_row_learns_and_comes_back(config, run, row: str) -> None:
    data = questions()
    learner = QuestionLearner(config, row, f"{row}.0", run)
    before = {name: p.detach().clone() for name, p in learner.trained.items()}
    learned = run.tensors("learned", lambda: learner.train(data))
    assert all(not torch.equal(learned[name], value) for name, value in before.items() if "lora_B" in name)
    assert (row in BAYESIAN) == any(name.endswith("_rho") for name in learned)
    probabilities = learner.probabilities(data)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(len(data)))
    again = QuestionLearner(config, row, f"{row}.0", run)
    again.restore(learned)
    torch.testing.assert_close(again.probabilities(data), probabilities)


def test_the_published_way_replaces_the_noise_of_the_library(config, run) -> None:
    learner = QuestionLearner(config, "per-token", "per-token.0", run)
    with torch.no_grad():
        for name, parameter in learner.trained.items():
            if "lora_B" in name:
                parameter.normal_()
    learner.model.train()
    batch = questions(4)
    with learner.noise():
        assert not any(flipout.nn.is_noisy(m) for m in learner.model.modules() if isinstance(m, flipout.nn.Perturbed))
        first, second = learner.loss(batch), learner.loss(batch)
    assert float(first.detach()) != float(second.detach())


def test_each_adapter_of_a_study_is_trained_once(config, run, monkeypatch) -> None:
    data, trained, asked = {"train": questions(), "valid": questions(8)}, [], []
    original = QuestionLearner.train

    def train(learner: QuestionLearner, part, decay: float = 0.0):
        trained.append((learner.name, decay))
        return original(learner, part, decay)

    def nll(learners: list[QuestionLearner], part) -> float:
        asked.append(part)
        return {"decay.0.1": 1.0, "flipout.0.0.3": 1.0}.get(learners[0].name, 2.0)

    monkeypatch.setattr(QuestionLearner, "train", train)
    config = replace(config, decays=(0.1, 1.0), std=0.05, other_stds=(0.3,))
    calibration = {"batches": [data["valid"].right()]}
    make = lambda settings, row, name: QuestionLearner(settings, row, name, run)  # noqa: E731
    study = AdapterStudy(config, run, make, data, nll, lambda _: calibration)
    assert [learner.name for learner in study.of_row("ensemble", 0)] == ["lora.0", "lora.0.1"]
    assert [learner.name for learner in study.of_row("lora", 0)] == ["lora.0"]
    assert [learner.name for learner in study.of_row("decay", 0)] == ["decay.0.1"]  # the lower loss on "valid"
    assert asked == [data["valid"]] * 2
    (free,) = study.of_row("training-free", 0)
    assert (free.name, free.is_sampled) == ("lora.0", True)
    assert trained == [("lora.0", 0.0), ("lora.0.1", 0.0), ("decay.0.0.1", 0.1), ("decay.0.1", 1.0)]
    (tuned,) = study.of_row("flipout", 0)
    assert [name for name, _ in trained[4:]] == ["flipout.0", "flipout.0.0.3"]
    assert (tuned.name, tuned.config.std) == ("flipout.0.0.3", 0.3)
    assert [learner.name for learner in study.of_row("flipout", 0)] == ["flipout.0.0.3"]  # and nothing is trained again
    assert len(trained) == 6
