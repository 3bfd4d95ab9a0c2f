"""The work of the language-model tables: rows and seeds train side by side, and each is tested at its best weights."""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch.nn.functional import cross_entropy

import flipout
from flipout.errors import InvalidArgument, RunError

from .. import data
from ..running.experiment import Config, Outcome, check_least
from ..running.results import Check, Number
from ..running.runs import Run
from ..training.modes import in_eval_mode
from ..training.supervised import set_precision
from .models import Shape
from .rows import Row
from .schedules import best
from .training import LanguageTraining, RowTrainer, losses
from .walks import read, spelled_out

_SPELLED = 200  # tokens


@dataclass(frozen=True)
class LanguageConfig(Config):
    """The settings of a table. `--resume` with other rows or seeds adds them to the run."""

    choices: ClassVar[tuple[str, ...]] = ("rows", "seeds", "side_by_side", "minutes")
    rows: tuple[str, ...] = ()  # rows of the table to train
    seeds: tuple[int, ...] = (0,)  # each row is trained with each seed
    side_by_side: int = 1  # models that train together, each on its own CUDA stream
    minutes: float | None = None  # stop after the last epoch that ends in this time; --resume continues
    text: Literal["ptb_words", "ptb_characters", "embedded_words", "embedded_characters"] = "ptb_words"
    most: int = 0  # tokens of each part of the text; 0: all of them
    shape: Shape = field(default_factory=Shape)
    training: LanguageTraining = field(default_factory=LanguageTraining)
    longer: float = 1.0  # times as many epochs for rows with weight noise, which learn more slowly
    draws: int = 60  # losses at the weights of flipout, under each scheme

    def __post_init__(self) -> None:
        check_least(self, side_by_side=1, most=0, draws=10)
        if not self.longer >= 1:
            raise InvalidArgument(f"longer={self.longer}: expected a factor of at least 1.")
        if not self.rows or not self.seeds or min(self.seeds) < 0:
            raise InvalidArgument(f"rows={self.rows}, seeds={self.seeds}: expected at least one of each, seeds ≥ 0.")
        if len({*self.rows}) < len(self.rows) or len({*self.seeds}) < len(self.seeds):
            raise InvalidArgument(f"rows={self.rows}, seeds={self.seeds}: give each once.")

    def training_of(self, row: Row) -> LanguageTraining:
        schedule, times = self.training.schedule, row.share * (self.longer if row.noisy else 1)
        return replace(self.training, schedule=replace(schedule, epochs=max(round(times * schedule.epochs), 1)))


@dataclass(frozen=True)
class Trained:
    """A trained row with one seed. Losses are nats per token at the mean weights; `valid` and `test` in one stream."""

    row: str
    seed: int
    size: int  # number of weights
    tokens: int  # predicted in an epoch
    history: list[dict[str, Any]]
    ended: str
    valid: float
    test: float
    cold: float  # the test text, each window from a zero state
    spelled: float  # difference from the loss of one token after the other
    drawn: dict[str, list[float]]  # losses of random batches at these weights, under each scheme

    @property
    def losses(self) -> list[float]:
        return losses(self.history)

    @property
    def best(self) -> int:
        return best(self.losses)


@dataclass(frozen=True)
class Table:
    """One of the tables: its rows, what is claimed of them, and their figures."""

    rows: tuple[Row, ...]
    found: Callable[[LanguageConfig, Sequence[Trained]], tuple[list[Check], dict[str, Number], dict[str, Number]]]
    figures: Callable[[Sequence[Trained]], Mapping[str, tuple[str, Any]]]

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def work(self, config: LanguageConfig, run: Run) -> Outcome:
        set_precision(config.training)
        text = data.text(config.text)
        parts = ((name, getattr(text, name)[: config.most or None]) for name in ("train", "valid", "test"))
        text = replace(text, **{name: part.to(run.device) for name, part in parts})
        self._train(config, text, run)
        trained = self.trained(run)
        checks, numbers, paper = self.found(config, trained)
        return Outcome(_setting(config, text, trained), numbers, paper, tuple(checks))

    def draw(self, config: LanguageConfig, run: Run) -> None:
        for name in run.logged_pieces():
            run.read_piece(name)  # fails if a row is missing, before anything is drawn
        for name, (caption, figure) in self.figures(self.trained(run)).items():
            run.draw(name, caption, figure)

    def trained(self, run: Run) -> list[Trained]:
        """Return all trained models of the run, also of earlier sessions, in the order of the table."""
        order = {row.name: place for place, row in enumerate(self.rows)}
        names = [name for name in run.finished_pieces() if name.partition(".")[0] in order]
        found = [Trained(**run.piece(name, dict)) for name in names]
        found.sort(key=lambda model: (order[model.row], model.seed))
        for model in found:
            if model.tokens != found[0].tokens:
                raise RunError(
                    f"{run.folder}: {model.row}.{model.seed}.json predicts {model.tokens:,} tokens an epoch, "
                    f"{found[0].row}.{found[0].seed}.json {found[0].tokens:,}: they are of different runs. "
                    "Remove the file that was copied from another run."
                )
        return found

    def _train(self, config: LanguageConfig, text: data.Text, run: Run) -> None:
        began, longest = time.monotonic(), 0.0
        pairs = [(name, seed) for seed in config.seeds for name in config.rows]
        waiting = deque(pair for pair in pairs if ".".join(map(str, pair)) not in run.finished_pieces())
        active: list[RowTrainer] = []
        if waiting:
            run.progress.say("After each epoch: training / validation loss in nats per token (seconds for each)")
        while waiting or active:
            while waiting and len(active) < config.side_by_side:
                name, seed = waiting.popleft()
                row = self.row(name)
                active.append(RowTrainer(config.training_of(row), config.shape, row, seed, text, run))
            before = time.monotonic()
            unfinished = [trainer for trainer in active if not trainer.ended]
            if unfinished:
                _epoch(unfinished, run)
            longest = max(longest, time.monotonic() - before)
            for trainer in [trainer for trainer in active if trainer.ended]:
                active.remove(trainer)
                _test(trainer, config, text, run)
            limit = math.inf if config.minutes is None else 60 * config.minutes
            if (waiting or active) and time.monotonic() - began + longest > limit:
                raise KeyboardInterrupt  # as if by hand: checkpoints stay


def _epoch(trainers: Sequence[RowTrainer], run: Run) -> None:
    """Train all models for one epoch, window by window in turns."""
    started = time.perf_counter()
    for trainer in trainers:
        trainer.begin()
    for step in range(len(trainers[0].walk.places)):
        for trainer in trainers:
            trainer.advance(step)
    _wait(run)
    training = time.perf_counter() - started
    for trainer in trainers:
        trainer.validate()
    _wait(run)
    seconds = time.perf_counter() - started
    for trainer in trainers:
        trainer.finish(training=training, seconds=seconds, beside=len(trainers))
    losses_shown = (
        f"{trainer.name} epoch {len(trainer.history)}: {trainer.history[-1]['train']:.4f} / {trainer.losses[-1]:.4f}"
        for trainer in trainers
    )
    run.progress.say(f"{'; '.join(losses_shown)} ({training:.2f} + {seconds - training:.2f} s)")


def _wait(run: Run) -> None:
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)


def _test(trainer: RowTrainer, config: LanguageConfig, text: data.Text, run: Run) -> None:
    """Test a model at its best weights, which stay in the run."""
    trainer.close()
    trainer.to_best()
    with trainer.on_stream():
        run.tensors(f"{trainer.name}.weights", trainer.weights)
        run.piece(trainer.name, lambda: _tested(trainer, config, text, run))
    run.drop_checkpoint(trainer.name)


def _tested(trainer: RowTrainer, config: LanguageConfig, text: data.Text, run: Run) -> dict[str, Any]:
    model, window = trainer.model, config.training.window
    excerpt = text.valid[: _SPELLED + 1]
    for epoch, record in enumerate(trainer.history, 1):
        run.log(epoch, **{name: record[name] for name in ("train", "valid", "rate")})
    return asdict(
        Trained(
            row=trainer.row.name,
            seed=trainer.seed,
            size=model.size,
            tokens=trainer.walk.predicted,
            history=trainer.history,
            ended=trainer.ended or "",
            valid=read(model, text.valid),
            test=read(model, text.test),
            cold=read(model, text.test, config.training.reading, window, carried=False),
            spelled=abs(read(model, excerpt) - spelled_out(model, excerpt)),
            drawn=_drawn(trainer, config, text, run) if trainer.row.scheme == "flipout" else {},
        )
    )


@torch.no_grad()
def _drawn(trainer: RowTrainer, config: LanguageConfig, text: data.Text, run: Run) -> dict[str, list[float]]:
    """Return losses under each scheme, of windows from anywhere in the text, from a zero state, without dropout."""
    model, batch, window = trainer.model, config.training.batch, config.training.window
    generator, losses_of = run.generator(f"batches.{trainer.name}"), {}
    with trainer.isolated(), in_eval_mode(model), flipout.sampling(model):
        for scheme in ("shared", "flipout"):
            scheme_losses = []
            with flipout.using(model, scheme=scheme):
                for _ in range(config.draws):
                    start = torch.randint(len(text.train) - window, (batch, 1), generator=generator)
                    place = (start + torch.arange(window)).to(run.device)
                    logits = model(text.train[place], model.start(batch)).logits
                    scheme_losses.append(cross_entropy(logits.flatten(0, 1), text.train[place + 1].flatten()))
            losses_of[scheme] = torch.stack(scheme_losses).tolist()
    return losses_of


def _setting(config: LanguageConfig, text: data.Text, trained: Sequence[Trained]) -> str:
    training, shape, schedule = config.training, config.shape, config.training.schedule
    inputs = f"{shape.embedding}-d embeddings" if shape.embedding else "one-hot input"
    sizes = sorted({model.size for model in trained})
    state = "carried from window to window" if training.carried else "zero at every window"
    rule = {
        "nonmonotonic": f"divided by {schedule.factor:g} when the validation loss is above the best of all but the "
        f"last {schedule.patience}",
        "cosine": "falling to 0 by a cosine",
        "constant": "constant",
    }[schedule.form]
    stop = f", or {schedule.stop} without a new best" if schedule.stop else ""
    longer = f" ({config.longer:g} times as many under weight noise)" if config.longer > 1 else ""
    return (
        f"{text.source}, {len(text.vocabulary):,} kinds of tokens; {shape.layers} × {shape.hidden} LSTM units, "
        f"{inputs}, {' and '.join(f'{size:,}' for size in sizes)} parameters. {training.optimizer} "
        f"({schedule.rate:g}, {rule}), clipped at {training.clip:g}, {training.batch} streams, windows of "
        f"{training.window}, state {state}, products in {training.precision}; {schedule.epochs} epochs{longer}{stop}. "
        "Validation after each epoch at the mean weights; the best weights are tested with batch 1 and carried state."
    )
