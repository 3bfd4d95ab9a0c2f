"""The experiment on language models."""

from ...running.experiment import Experiment
from .settings import LlmConfig
from .work import draw, work

ES_LLM = Experiment(
    name="es-llm",
    title="Language models without gradients: rank-one flips beside other noise and LoRA",
    claim="A population under rank-one flips trains a language model on what can be checked but not differentiated, "
    "and in the same time reaches no less than other noise does.",
    presets={
        # The number of steps ends each training, on a busy machine too.
        "smoke": LlmConfig(
            seconds=600.0,
            steps=2,
            points=1,
            population=8,
            few=4,
            chunk=4,
            writers=4,
            train=8,
            test=8,
            batch=2,
            prompts_tested=4,
            rounds=2,
        ),
        "quick": LlmConfig(),
        # Every training is a piece of its own. One member writes for eight prompts as fast as for one, and so do 512.
        "paper": LlmConfig(
            model="smollm2",
            dtype="bfloat16",
            seeds=3,
            seconds=60.0,
            points=5,
            population=512,
            chunk=128,
            writers=512,
            std=0.001,
            learning_rate=0.002,
            lora_rate=2e-4,
            train=2000,
            test=500,
            prompts=8,
            tokens=48,
            prompts_tested=96,
            rounds=3,
        ),
    },
    costs={
        "smoke": "seconds (needs flipout[peft])",
        "quick": "3.5 minutes on two busy cores: a tiny Llama with random weights (needs flipout[peft])",
        "paper": "about half an hour on one H200, not measured yet; needs ARC in FLIPOUT_DATA and flipout[lora,peft]",
    },
    work=work,
    draw=draw,
)
