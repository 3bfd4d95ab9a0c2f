"""Adapters that predict the rating of a sentence."""

from typing import Any

import torch
from torch import Tensor

import flipout
from flipout import bayes

from ..rows import Learner
from .models import RatingModel, encoder
from .ratings import Ratings
from .settings import SentimentSettings

_LIKELIHOOD = bayes.likelihoods.HeteroscedasticGaussian()


class RatingLearner(Learner):
    """An adapter of an encoder, trained with the head that predicts mean and noise of a rating."""

    config: SentimentSettings

    def make(self, dropout: float) -> tuple[Any, Any]:
        base, _ = encoder(self.config.model, self.run.seed_of("base") % 2**31, self.run.device)
        model = RatingModel(base, self.config.rank, dropout, self.run.seed_of(self.name) % 2**31).to(self.run.device)
        return model, model.encoder

    def loss(self, batch: Ratings) -> Tensor:
        output = self.model(**batch.inputs(self.run.device))
        return -_LIKELIHOOD.log_prob(output, batch.rating.to(output.device).unsqueeze(1)).mean()

    @torch.no_grad()
    def outputs(self, data: Ratings) -> Tensor:
        """Return the network's outputs (samples, N, 2) under each sample of the weights, on the CPU."""
        order = data.by_length()
        blocks = [data[rows].inputs(self.run.device) for rows in order.split(self.config.chunk)]
        found = torch.stack([torch.cat(sample) for sample in self._samples(blocks)]).cpu()
        return found[:, order.argsort()]

    def _samples(self, blocks: list[dict[str, Tensor]]) -> list[list[Tensor]]:
        if not self.is_sampled:
            with self.answering() as passes:
                return [[self.model(**block) for block in blocks] for _ in range(passes)]
        samples = []
        for sample in range(self.config.samples):
            seed, first = self.run.seed_of(f"{self.name}.samples.{sample}"), 0
            outputs = []
            for block in blocks:
                with flipout.hold(self.model, seed=seed, first=first):
                    outputs.append(self.model(**block))
                first += len(outputs[-1])
            samples.append(outputs)
        return samples


def scored_together(learners: list[RatingLearner], data: Ratings) -> dict[str, Any]:
    """Return RMSE, NLL and coverage of the mixture of all samples of several learners."""
    outputs = torch.cat([learner.outputs(data) for learner in learners])
    prediction = bayes.Prediction.from_outputs(outputs.double(), _LIKELIHOOD)
    scores = bayes.evaluate(prediction, data.rating.double().unsqueeze(1), levels=(0.9,))
    assert isinstance(scores, bayes.NumberScores)
    return {"rmse": scores.rmse, "nll": scores.nll, "coverage": scores.coverage[0.9]}
