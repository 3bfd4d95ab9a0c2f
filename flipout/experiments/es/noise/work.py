"""The error of an update under every kind of noise: on a linear fitness, and on small networks."""

from dataclasses import dataclass, field

from flipout.errors import InvalidArgument

from ...running.experiment import Config, Outcome, check_least
from ...running.runs import Run
from . import claims
from .errors import measured_errors, methods
from .figures import errors_figure
from .tasks import LINEAR, TaskConfig, make_task


@dataclass(frozen=True)
class EstimatesConfig(Config):
    """All estimates of a task are of one gradient, at the initial weights and on one batch."""

    tasks: TaskConfig = field(default_factory=TaskConfig)
    networks: tuple[str, ...] = ("fc", "lstm", "transformer")
    members: int = 400
    group: int = 40  # members that share one ΔŴ
    std: float = 0.02
    draws: int = 40  # estimates on each network
    linear_draws: int = 400

    def __post_init__(self) -> None:
        check_least(self, members=2, group=2, draws=2, linear_draws=2)
        if self.group % 2 or self.members % self.group:
            raise InvalidArgument(
                f"members={self.members}, group={self.group}: expected an even group, and whole groups of members."
            )
        if unknown := set(self.networks) - {"fc", "lstm", "transformer"}:
            raise InvalidArgument(f"networks: {sorted(unknown)} are unknown; expected fc, lstm and transformer.")


def work(config: EstimatesConfig, run: Run) -> Outcome:
    kinds = methods(config.group)
    found = {
        task: {
            name: run.piece(
                _piece(task, name),
                lambda t=task, m=method: measured_errors(
                    config.tasks, t, m, config.members, config.std, _draws(config, t), run
                ),
            )
            for name, method in run.progress.track(kinds.items(), task)
        }
        for task in (LINEAR, *config.networks)
    }
    checks = [claims.theory(found[LINEAR], kinds, config.members), *claims.reported(found)]
    return Outcome(_setting(config, run), claims.numbers(found, kinds, config.members), {}, tuple(checks))


def draw(config: EstimatesConfig, run: Run) -> None:
    kinds = methods(config.group)
    found = {task: {name: run.read_piece(_piece(task, name)) for name in kinds} for task in (LINEAR, *config.networks)}
    run.draw(
        claims.FIGURE,
        f"The mean squared error of an update of {config.members} members, in squares of the gradient (above), and the "
        "error times seconds, as a multiple of the least (below).",
        errors_figure(found, kinds, config.members),
    )


def _piece(task: str, name: str) -> str:
    return f"{task}.{name.replace(', ', '-').replace(' ', '-')}"


def _draws(config: EstimatesConfig, task: str) -> int:
    return config.linear_draws if task == LINEAR else config.draws


def _setting(config: EstimatesConfig, run: Run) -> str:
    sources = dict.fromkeys(make_task(config.tasks, name, run).source for name in config.networks)
    return (
        f"Linear fitness of 24 × 16 weights, {config.linear_draws} estimates; networks at their initial weights on one "
        f"batch of {config.tasks.batch}, {config.draws} estimates: fc with hidden layers {config.tasks.hidden}, an "
        f"LSTM and a transformer of width {config.tasks.width} on windows of {config.tasks.window} characters; "
        f"{'; '.join(sources)}; {config.members} members, σ = {config.std:g}, centred fitness; errors are towards the "
        f"gradient at the mean weights; {run.device.type}, seconds of the processor."
    )
