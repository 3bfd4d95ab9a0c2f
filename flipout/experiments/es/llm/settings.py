"""The settings of the experiment."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from flipout.errors import InvalidArgument

from ...lora.models import Base
from ...running.experiment import Config, check_least

TaskName = Literal["choice", "text"]
Method = Literal["rank_one", "low_rank", "one_by_one", "lora"]
TITLES: dict[Method, str] = {
    "rank_one": "rank-one flips",
    "low_rank": "low_rank(1)",
    "one_by_one": "full Gaussian noise, one member after the other",
    "lora": "LoRA by backpropagation",
}


@dataclass(frozen=True)
class LlmConfig(Config):
    """Every training has the same time. The time of held-out tests is not counted.

    A run may be resumed with more seeds: all trainings of a seed come before those of the next.
    """

    choices: ClassVar[tuple[str, ...]] = ("seeds", "minutes")

    minutes: float | None = None  # begin no training that would not end in this time; --resume continues
    model: Base = "random"
    dtype: Literal["float32", "bfloat16"] = "float32"
    seeds: int = 2
    seconds: float = 5.0  # of each training
    steps: int = 1_000_000  # of each training, at most
    points: int = 4  # held-out tests while it trains
    population: int = 128
    few: int = 30  # members that are evaluated one after the other
    chunk: int = 128  # members that read at a time
    writers: int = 128  # members that write at a time: a token takes as long for many of them as for few
    std: float = 0.03
    learning_rate: float = 0.3  # times the mean of fitness × standard noise over the population
    lora_rate: float = 1e-2
    rank: int = 8  # of LoRA
    train: int = 96  # questions
    test: int = 128
    batch: int = 8  # questions of a generation
    prompts: int = 2  # prompts of a generation
    prompts_tested: int = 48
    tokens: int = 8  # new ones of a text
    shortest: int = 2  # of random weights: a text has to end within these tokens
    longest: int = 6
    captured: bool = False  # replay a CUDA graph for each token that is written
    rounds: int = 5  # of each kind of forward pass that is timed

    def __post_init__(self) -> None:
        check_least(self, seeds=2, steps=1, points=1, population=4, few=4, chunk=1, train=2, test=2, batch=1, prompts=1)
        check_least(self, prompts_tested=2, tokens=1, rounds=2, rank=1, writers=1)
        for name in ("chunk", "writers"):
            if self.population % getattr(self, name):
                raise InvalidArgument(
                    f"population={self.population}, {name}={getattr(self, name)}: expected whole chunks. Use a number "
                    "that divides the population."
                )
        for name in ("seconds", "minutes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidArgument(f"{name}={value}: expected a number above 0.")

    @property
    def trained(self) -> list[tuple[TaskName, Method, int]]:
        """Return all trainings. LoRA needs a gradient, which the property of a text does not have."""
        methods: dict[TaskName, tuple[Method, ...]] = {
            "choice": ("rank_one", "low_rank", "one_by_one", "lora"),
            "text": ("rank_one", "low_rank", "one_by_one"),
        }
        return [(task, name, seed) for seed in range(self.seeds) for task, names in methods.items() for name in names]
