"""Adapters that answer questions with several choices."""

from typing import Any

import torch
from torch import Tensor

from flipout import bayes

from .models import ChoiceScores, adapted, base_model
from .questions import Questions
from .rows import Learner
from .settings import LoraSettings


class QuestionLearner(Learner):
    """An adapter of a language model, trained on the right choices."""

    config: LoraSettings

    def make(self, dropout: float) -> tuple[Any, Any]:
        base, _ = base_model(self.config.model, self.run.seed_of("base") % 2**31, self.run.device)
        seed = self.run.seed_of(self.name) % 2**31
        model = adapted(base, self.config.rank, dropout, seed, self.config.targets).to(self.run.device)
        return model, model

    def loss(self, batch: Questions) -> Tensor:
        return self.model(**batch.right(self.run.device)).loss

    @torch.no_grad()
    def probabilities(self, questions: Questions) -> Tensor:
        """Return the probabilities (N, C) of the choices, on the CPU."""
        scores, order = ChoiceScores(self.model).eval(), questions.by_length()
        inputs = {name: value[order].to(self.run.device) for name, value in questions.inputs().items()}
        found = torch.empty(questions.input_ids.shape[:2])
        found[order] = self._averaged(scores, inputs).cpu()
        return found

    def _averaged(self, scores: ChoiceScores, inputs: dict[str, Tensor]) -> Tensor:
        samples, chunk = self.config.samples, self.config.chunk
        if self.is_sampled:
            seed = self.run.seed_of(f"{self.name}.samples")
            return bayes.predict(scores, inputs, samples, likelihood="categorical", seed=seed, chunk=chunk).mean
        parts = zip(*(value.split(chunk) for value in inputs.values()), strict=True)
        blocks = [dict(zip(inputs, part, strict=True)) for part in parts]
        with self.answering() as passes:
            found = [torch.cat([scores(**block) for block in blocks]).softmax(1) for _ in range(passes)]
        return torch.stack(found).mean(0)


def scored(probabilities: Tensor, answer: Tensor) -> dict[str, Any]:
    """Return accuracy, NLL, ECE, and how well the entropy tells wrong answers from right ones."""
    known = bayes.Prediction.from_outputs(probabilities.log().unsqueeze(0), "categorical")
    scores = bayes.evaluate(known, answer)
    assert isinstance(scores, bayes.Scores)
    doubt, is_right = torch.special.entr(probabilities).sum(1), probabilities.argmax(1) == answer
    both = bool(is_right.any()) and not bool(is_right.all())
    auroc = bayes.ood_auroc(doubt[is_right], doubt[~is_right]) if both else None
    return {"accuracy": scores.accuracy, "nll": scores.nll, "ece": scores.ece, "auroc": auroc}


def scored_together(learners: list[QuestionLearner], questions: Questions) -> dict[str, Any]:
    """Return the scores of the mean of several learners' probabilities."""
    return scored(torch.stack([learner.probabilities(questions) for learner in learners]).mean(0), questions.answer)
