"""The settings of the experiment."""

from dataclasses import dataclass

from flipout.errors import InvalidArgument

from ..running.experiment import Config, check_least
from .models import TARGETS, Base


@dataclass(frozen=True)
class AdapterSettings(Config):
    """What both tables have. Equal budgets: every adapter has the same number of steps, batches and samples.

    What is tuned has the lowest NLL on the validation set: the weight decay of LoRA, and the initial spread of each
    Bayesian row. Adam hardly changes a spread in so few steps, so the initial one decides.
    """

    seeds: int = 3
    train: int = 96
    valid: int = 96  # for what is tuned, and to calibrate the training-free spread
    test: int = 256
    noise: float = 0.15  # of the answers in the synthetic training set
    steps: int = 150
    batch: int = 32
    learning_rate: float = 1e-2
    rank: int = 8
    std: float = 0.02
    other_stds: tuple[float, ...] = ()  # initial spreads that are tried besides
    prior_std: float = 0.2
    kl_weight: float = 0.1
    decays: tuple[float, ...] = (0.1, 1.0)
    dropout: float = 0.1
    members: int = 3
    tolerance: float = 0.05
    samples: int = 16
    chunk: int = 256  # rows of a pass
    rounds: int = 30  # steps of each row that are timed

    def __post_init__(self) -> None:
        check_least(self, seeds=1, train=2, valid=2, test=8, steps=2, batch=2, members=2, samples=2, rounds=2, chunk=1)
        if not self.decays:
            raise InvalidArgument("decays: expected at least one.")
        tried = (self.std, *self.other_stds)
        if min(tried) <= 0 or len(set(tried)) < len(tried):
            raise InvalidArgument(f"std={self.std}, other_stds={self.other_stds}: expected different numbers > 0.")


def spreads_tried(config: AdapterSettings) -> str:
    """Say which initial spreads the posteriors have."""
    if not config.other_stds:
        return f"{config.std:g}"
    tried = " or ".join(f"{std:g}" for std in (config.std, *config.other_stds))
    return f"{tried}, whichever has the lowest NLL on the validation set,"


@dataclass(frozen=True)
class LoraSettings(AdapterSettings):
    """Questions with several choices. `noise` is the share of wrong answers."""

    model: Base = "random"
    targets: tuple[str, ...] = TARGETS  # the layers with an adapter
    draws: int = 40  # weight draws, for the variance of gradients
    information: int = 2000  # weight samples for the mutual information, for each way to draw them

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, draws=4, information=100)
        if not self.targets:
            raise InvalidArgument("targets: expected at least one layer, such as q_proj.")
