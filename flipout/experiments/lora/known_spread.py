"""The mutual information of the next token and an adapter of known spread, for one prompt, in three ways."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import flipout

from ..running.experiment import Config, Experiment, Outcome, check_least
from ..running.runs import Run
from . import claims
from .figures import information_figure
from .information import measured_information
from .models import ABOUT, Base, adapted, base_model
from .questions import WORDS

PROMPT = (
    "Question: A glass of cold water stands in a warm room. After a few minutes there are small drops on its outside. "
    "Where do they come from?\nAnswer:"
)
_TARGETS = ("q_proj", "v_proj")


@dataclass(frozen=True)
class KnownSpreadSettings(Config):
    """Nothing is trained: A as PEFT draws it, B drawn, since LoRA's B starts at 0 and would hide all noise on A."""

    model: Base = "random"
    length: int = 34  # tokens of the prompt: its last ones, if it has more
    rank: int = 8
    std: float = 0.1  # of the noise on A
    b_std: float = 0.02  # of B
    samples: int = 2000  # each way
    chunk: int = 250  # rows of a pass

    def __post_init__(self) -> None:
        check_least(self, length=1, rank=1, samples=100, chunk=1)


def work(config: KnownSpreadSettings, run: Run) -> Outcome:
    found = run.piece("information", lambda: _measured(config, run))
    checks = [claims.same_information(found), claims.share_per_token(found)]
    if config.model != "random":
        checks.insert(1, claims.per_token_differs(found))
    numbers = {f"mutual information, {way}, nats": value for way, (value, _) in found.items()}
    errors = {f"its standard error, {way}": error for way, (_, error) in found.items()}
    setting = (
        f"{ABOUT[config.model]}. LoRA of rank {config.rank} on {' and '.join(_TARGETS)}, B drawn with standard "
        f"deviation {config.b_std:g}, noise of standard deviation {config.std:g} on A; one prompt of {config.length} "
        f"tokens, {config.samples} samples each way."
    )
    return Outcome(setting, {**numbers, **errors}, {}, tuple(checks))


def _measured(config: KnownSpreadSettings, run: Run) -> dict[str, list[float]]:
    model = _model(config, run)
    with torch.random.fork_rng([run.device] if run.device.type == "cuda" else []):
        torch.manual_seed(run.seed_of("information") % 2**63)
        found = measured_information(
            model, _prompt(config, run), config.samples, config.chunk, run.seed_of("draws"), progress=run.progress
        )
    run.log(config.samples, **{way.replace(" ", "_"): value for way, (value, _) in found.items()})
    return found


def _model(config: KnownSpreadSettings, run: Run) -> Any:
    base, _ = base_model(config.model, run.seed_of("base") % 2**31, run.device)
    model = adapted(base, config.rank, 0.0, run.seed_of("adapter") % 2**31, _TARGETS).to(run.device)
    generator = run.generator("b")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(config.b_std * torch.randn(parameter.shape, generator=generator))
    return flipout.peft.bayesian_lora(model, std=config.std, prior_std=0.2).eval()


def _prompt(config: KnownSpreadSettings, run: Run) -> Tensor:
    if config.model == "random":
        return torch.randint(3, WORDS, (1, config.length), generator=run.generator("prompt")).to(run.device)
    _, tokenizer = base_model(config.model, 0, run.device)
    return torch.tensor([tokenizer(PROMPT)["input_ids"][-config.length :]], device=run.device)


def draw(config: KnownSpreadSettings, run: Run) -> None:
    run.draw(
        claims.INFORMATION_FIGURE,
        "Mutual information of the next token and the weights for one prompt: explicit samples, one weight per "
        "sequence, and signs per token; bars are two standard errors.",
        information_figure(run.read_piece("information")),
    )


LORA_INFORMATION = Experiment(
    name="lora-information",
    title="Mutual information under one sample of the adapter per sequence, and under signs per token",
    claim="One sample of the adapter per sequence has the mutual information of explicit samples; signs per token, the "
    "published way, have less.",
    presets={
        "smoke": KnownSpreadSettings(samples=200),
        "quick": KnownSpreadSettings(),
        "paper": KnownSpreadSettings(model="smollm2", samples=640, chunk=16),
    },
    costs={
        "smoke": "seconds (needs flipout[peft])",
        "quick": "seconds: a tiny Llama with random weights (needs flipout[peft])",
        "paper": "4 minutes on one core; needs flipout[lora,peft]",
    },
    work=work,
    draw=draw,
)
