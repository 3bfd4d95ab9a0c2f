"""Bayesian LoRA beside its rivals: accuracy, calibration, detection of errors, and what it costs."""

import copy
import tempfile
from typing import Any

import torch

import flipout

from ..running.experiment import Outcome
from ..running.runs import Run
from . import claims
from .answers import QuestionLearner, scored_together
from .costs import step_costs
from .figures import information_figure, rows_figure
from .information import measured_information
from .models import ABOUT, base_model
from .questions import Questions, arc, synthetic
from .rows import ROWS, TITLES, AdapterStudy
from .settings import LoraSettings, spreads_tried


def work(config: LoraSettings, run: Run) -> Outcome:
    data = _questions(config, run)
    study, seeds = _study(config, data, run), range(config.seeds)

    def scores(row: str, seed: int) -> Any:
        learners = study.of_row(row, seed)
        found: dict[str, Any] = {where: scored_together(learners, data[where]) for where in ("test", "shift")}
        return {"adapters": [learner.name for learner in learners], **found}

    def of_piece(row: str, seed: int) -> Any:
        return run.piece(f"{row}.{seed}", lambda: scores(row, seed))

    table = {row: [of_piece(row, seed) for seed in seeds] for row in ROWS}
    variances = [run.piece(f"gradients.{seed}", lambda s=seed: _gradients(study, s)) for seed in seeds]
    information = run.piece("information", lambda: _information(study))
    same = run.piece("same", lambda: _same(study))
    costs = run.piece("costs", lambda: step_costs(study))
    checks = [
        *claims.same_model(same),
        claims.same_information(information),
        claims.per_token_loses(information),
        *claims.better(table),
        claims.less_variance(variances),
        claims.step_time(costs),
        *claims.peak_memory(costs),
    ]
    return Outcome(
        _setting(config, data), claims.measured_numbers(table, information, variances, costs), {}, tuple(checks)
    )


def draw(config: LoraSettings, run: Run) -> None:
    table = {row: [run.read_piece(f"{row}.{seed}") for seed in range(config.seeds)] for row in ROWS}
    run.draw(
        claims.ROWS_FIGURE,
        "Calibration error and negative log-likelihood of each row, on questions like those of the training set and on "
        "the shift; a dot for each seed.",
        rows_figure(table),
    )
    run.draw(
        claims.INFORMATION_FIGURE,
        "Mutual information of the next token and the weights for one prompt: explicit samples, one weight per "
        "sequence, and signs per token; bars are two standard errors.",
        information_figure(run.read_piece("information")),
    )


def _questions(config: LoraSettings, run: Run) -> dict[str, Questions]:
    """Return the questions for training, validation and test, and those of the shift."""
    sizes = {"train": config.train, "valid": config.valid, "test": config.test, "shift": config.test}
    found = {}
    if config.model == "random":
        for name, count in sizes.items():
            noise = config.noise if name in ("train", "valid") else 0.0
            generator = run.generator(f"questions.{name}")
            found[name] = synthetic(count, noise=noise, unseen=name == "shift", generator=generator)
    else:
        _, tokenizer = base_model(config.model, 0, run.device)
        both = arc("easy", "train", tokenizer, config.train + config.valid, run.generator("questions.train"))
        found = {"train": both[slice(config.train)], "valid": both[slice(config.train, None)]}
        for name, part in (("test", "easy"), ("shift", "challenge")):
            found[name] = arc(part, "test", tokenizer, sizes[name], run.generator(f"questions.{name}"))
    return found


def _study(config: LoraSettings, data: dict[str, Questions], run: Run) -> AdapterStudy:
    def calibration(learner: QuestionLearner) -> dict[str, Any]:
        halves = torch.arange(config.valid).split(config.valid // 2)[:2]
        return {"batches": [data["valid"][rows].right(run.device) for rows in halves]}

    return AdapterStudy(
        config,
        run,
        lambda settings, row, name: QuestionLearner(settings, row, name, run),
        data,
        lambda learners, questions: scored_together(learners, questions)["nll"],
        calibration,
    )


def _gradients(study: AdapterStudy, seed: int) -> dict[str, float]:
    """Return the variance of the gradient of A's means on one batch under both schemes, at the flipout posterior."""
    config, run, learner = study.config, study.run, study.learned("flipout", f"flipout.{seed}")
    batch = study.data["train"][slice(config.batch)]
    means = [p for name, p in learner.trained.items() if name.endswith("lora_A.default.weight")]
    found = {}
    for scheme in ("shared", "flipout"):
        draws = []
        with flipout.using(learner.model, scheme=scheme):
            for draw_number in range(config.draws):
                with flipout.hold(learner.model, seed=run.seed_of(f"gradients.{draw_number}")):
                    grads = torch.autograd.grad(learner.loss(batch), means)
                draws.append(torch.cat([grad.flatten() for grad in grads]).double())
        found[scheme] = float(torch.stack(draws).var(0).sum())
    return found


def _information(study: AdapterStudy) -> dict[str, list[float]]:
    config, run, learner = study.config, study.run, study.learned("flipout", "flipout.0")
    question = study.data["test"][slice(1)]
    length = int((question.labels[0, 0] == -100)[question.attention_mask[0, 0] == 1].sum())
    with torch.random.fork_rng([run.device] if run.device.type == "cuda" else []):
        torch.manual_seed(run.seed_of("information") % 2**63)
        return measured_information(
            learner.model,
            question.input_ids[:, 0, :length].to(run.device),
            config.information,
            config.chunk,
            run.seed_of("draws"),
        )


def _same(study: AdapterStudy) -> dict[str, float]:
    """Compare the merged mean with the adapter's forward pass, and a loaded posterior with the saved one."""
    config, run, learner = study.config, study.run, study.learned("flipout", "flipout.0")
    rows = study.data["test"][slice(4)]
    inputs = {name: value for name, value in rows.right(run.device).items() if name != "labels"}
    with torch.no_grad():
        mean, predicted = learner.model(**inputs).logits, learner.probabilities(rows)
        base, _ = base_model(config.model, run.seed_of("base") % 2**31, run.device)
        with tempfile.TemporaryDirectory() as folder:
            learner.model.save_pretrained(folder)
            loaded = flipout.peft.load(base, folder, autocast_adapter_dtype=False).to(run.device).eval()
        again = study.make(config, "flipout", learner.name)
        again.model = loaded
        reloaded = again.probabilities(rows)
        merged_model = copy.deepcopy(learner.model)  # other learners share the base weights
        merged_model.merge_adapter()
        merged = merged_model(**inputs).logits
    return {
        "merged": float((merged - mean).abs().max() / mean.abs().max()),
        "reloaded": float((reloaded - predicted).abs().max()),
    }


def _setting(config: LoraSettings, data: dict[str, Questions]) -> str:
    rows = "; ".join(TITLES[row] for row in ROWS)
    return (
        f"{ABOUT[config.model]}. LoRA of rank {config.rank} on {', '.join(config.targets)}. {data['train'].source}: "
        f"{config.train} questions for training, {config.valid} for validation, {config.test} each for the test and "
        f"the shift. {config.steps} steps of AdamW ({config.learning_rate:g}, falling to 0) on batches of "
        f"{config.batch}, {config.seeds} seeds, {config.samples} samples per prediction, posteriors of initial spread "
        f"{spreads_tried(config)} under the prior N(0, {config.prior_std:g}²) with KL weight {config.kl_weight:g}. "
        f"Rows: {rows}."
    )
