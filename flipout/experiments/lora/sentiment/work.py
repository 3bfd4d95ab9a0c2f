"""Ratings of sentiment by an encoder with an adapter: eight rows, and what each gives on texts of other kinds."""

import copy
import tempfile
from typing import Any

import torch

import flipout

from ...running.experiment import Outcome
from ...running.runs import Run
from ..claims import peak_memory, same_model, step_time
from ..costs import step_costs
from ..rows import ROWS, TITLES, AdapterStudy
from ..settings import spreads_tried
from . import claims
from .answers import RatingLearner, scored_together
from .figures import rows_figure
from .models import ABOUT, encoder
from .ratings import KINDS, SHIFTS, TRAINED, Ratings, synthetic, vader
from .settings import SentimentSettings


def work(config: SentimentSettings, run: Run) -> Outcome:
    data = _data(config, run)
    study, seeds = _study(config, data, run), range(config.seeds)

    def scores(row: str, seed: int) -> Any:
        learners = study.of_row(row, seed)
        found: dict[str, Any] = {where: scored_together(learners, data[where]) for where in ("test", *SHIFTS)}
        return {"adapters": [learner.name for learner in learners], **found}

    def of_piece(row: str, seed: int) -> Any:
        return run.piece(f"{row}.{seed}", lambda: scores(row, seed))

    table = {row: [of_piece(row, seed) for seed in seeds] for row in ROWS}
    same = run.piece("same", lambda: _same(study))
    costs = run.piece("costs", lambda: step_costs(study))
    checks = [*same_model(same), *claims.better(table), step_time(costs), *peak_memory(costs)]
    return Outcome(_setting(config, data), claims.measured_numbers(table, costs), {}, tuple(checks))


def draw(config: SentimentSettings, run: Run) -> None:
    table = {row: [run.read_piece(f"{row}.{seed}") for seed in range(config.seeds)] for row in ROWS}
    run.draw(
        claims.ROWS_FIGURE,
        "Error, negative log-likelihood and coverage of each row, on texts like those of the training set and on three "
        "other kinds; a dot for each seed.",
        rows_figure(table),
    )


def _data(config: SentimentSettings, run: Run) -> dict[str, Ratings]:
    """Return the ratings for training, validation and test, all of tweets, and those of each shift."""
    counts = {"train": config.train, "valid": config.valid, "test": config.test}
    if config.model == "random":
        kinds = {**dict.fromkeys(counts, TRAINED), **{shift: shift for shift in SHIFTS}}
        return {
            name: synthetic(
                counts.get(name, config.test),
                kind=kind,
                noise=config.noise,
                generator=run.generator(f"ratings.{name}"),
            )
            for name, kind in kinds.items()
        }
    _, tokenizer = encoder(config.model, 0, run.device)
    found, chosen = {}, {kind: sum(counts.values()) if kind == TRAINED else config.test for kind in KINDS}
    for kind, count in chosen.items():
        ratings = vader(kind, tokenizer)
        found[kind] = ratings[torch.randperm(len(ratings), generator=run.generator(f"ratings.{kind}"))[:count]]
    tweets, start = found.pop(TRAINED), 0
    for name, count in counts.items():
        found[name] = tweets[slice(start, start + count)]
        start += count
    return found


def _study(config: SentimentSettings, data: dict[str, Ratings], run: Run) -> AdapterStudy:
    def calibration(learner: RatingLearner) -> dict[str, Any]:
        halves = torch.arange(config.valid).split(config.valid // 2)[:2]
        batches = [data["valid"][rows] for rows in halves]
        return {"batches": batches, "loss": lambda _, batch: learner.loss(batch)}

    return AdapterStudy(
        config,
        run,
        lambda settings, row, name: RatingLearner(settings, row, name, run),
        data,
        lambda learners, ratings: scored_together(learners, ratings)["nll"],
        calibration,
    )


def _same(study: AdapterStudy) -> dict[str, float]:
    """Compare the merged mean with the adapter's forward pass, and a loaded posterior with the saved one."""
    learner, rows = study.learned("flipout", "flipout.0"), study.data["test"][slice(8)]
    again, inputs = study.learned("flipout", "flipout.0"), rows.inputs(study.run.device)
    base, _ = encoder(study.config.model, study.run.seed_of("base") % 2**31, study.run.device)
    with tempfile.TemporaryDirectory() as folder:
        learner.adapted.save_pretrained(folder)
        again.model.encoder = flipout.peft.load(base, folder, autocast_adapter_dtype=False)
    again.model.to(study.run.device).eval()
    merged_model = copy.deepcopy(learner.model)  # other learners share the base weights
    merged_model.encoder.merge_adapter()
    with torch.no_grad():
        mean, merged = learner.model(**inputs), merged_model(**inputs)
    reloaded, predicted = again.outputs(rows), learner.outputs(rows)
    return {
        "merged": float((merged - mean).abs().max() / mean.abs().max()),
        "reloaded": float((reloaded - predicted).abs().max()),
    }


def _setting(config: SentimentSettings, data: dict[str, Ratings]) -> str:
    return (
        f"{ABOUT[config.model]}. LoRA of rank {config.rank} on all linear layers, and a head that predicts mean and "
        f"noise of a rating between −4 and 4. {data['train'].source}: {len(data['train'])} tweets for training, "
        f"{len(data['valid'])} for validation, {len(data['test'])} for the test, and "
        f"{', '.join(f'{len(data[shift])} sentences of {shift}' for shift in SHIFTS)} as the shift. {config.steps} "
        f"steps of AdamW ({config.learning_rate:g}, falling to 0) on batches of {config.batch}, {config.seeds} seeds, "
        f"{config.samples} samples per prediction, posteriors of initial spread {spreads_tried(config)} under the "
        f"prior N(0, {config.prior_std:g}²) with KL weight {config.kl_weight:g}. "
        f"Rows: {'; '.join(TITLES[row] for row in ROWS)}."
    )
