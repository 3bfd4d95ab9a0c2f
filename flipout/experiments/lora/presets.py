"""The experiment on Bayesian LoRA."""

from ..running.experiment import Experiment
from .settings import LoraSettings
from .work import draw, work

BAYESIAN_LORA = Experiment(
    name="bayesian-lora",
    title="Bayesian LoRA: one sample of the adapter per sequence",
    claim="A posterior on LoRA's A, sampled once for each sequence, has the mutual information of explicit samples, "
    "which signs per token do not have; it is better calibrated than LoRA, at little cost.",
    presets={
        "smoke": LoraSettings(
            seeds=1,
            train=24,
            valid=16,
            test=32,
            steps=10,
            batch=8,
            decays=(0.1,),
            members=2,
            samples=4,
            draws=4,
            rounds=3,
            information=200,
        ),
        "quick": LoraSettings(),
        # Five of its eight rows have been run (docs/experiments.md). Every row and seed is a piece of its own. As many
        # questions as BLoB's WinoGrande-S, and its layers but the head, which SmolLM2 shares with its embedding.
        "paper": LoraSettings(
            model="smollm2",
            targets=("q_proj", "v_proj"),
            train=640,
            valid=251,
            test=500,
            steps=200,
            batch=16,
            learning_rate=1e-3,
            std=0.01,
            other_stds=(0.04,),
            kl_weight=0.1,
            decays=(0.01, 0.1),
            tolerance=0.01,
            samples=8,
            draws=20,
            information=640,
        ),
    },
    costs={
        "smoke": "seconds (needs flipout[peft])",
        "quick": "2 minutes on two cores: a tiny Llama with random weights (needs flipout[peft])",
        "paper": "more than 20 minutes of an H200 with the seeds side by side; needs ARC in FLIPOUT_DATA and "
        "flipout[lora,peft]",
    },
    work=work,
    draw=draw,
)
