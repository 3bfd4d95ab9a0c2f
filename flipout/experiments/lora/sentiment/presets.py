"""The experiment on ratings of sentiment."""

from ...running.experiment import Experiment
from .settings import SentimentSettings
from .work import draw, work

LORA_SENTIMENT = Experiment(
    name="lora-sentiment",
    title="Bayesian LoRA on ratings of sentiment, from tweets to reviews and editorials",
    claim="A posterior on the adapter of an encoder makes its intervals wider on texts of kinds that it was not "
    "trained on.",
    presets={
        "smoke": SentimentSettings(
            seeds=1, train=24, valid=16, test=24, steps=10, batch=8, decays=(0.1,), members=2, samples=4, rounds=3
        ),
        "quick": SentimentSettings(train=256, test=256, steps=200),
        # Every row and seed is a piece of its own, of about a minute.
        "paper": SentimentSettings(
            model="minilm",
            train=2400,
            valid=600,
            test=1200,
            steps=400,
            batch=32,
            learning_rate=1e-3,
            std=0.005,
            other_stds=(0.02,),
            kl_weight=1.0,
            tolerance=0.01,
            chunk=600,
        ),
    },
    costs={
        "smoke": "seconds (needs flipout[peft])",
        "quick": "2 minutes on two cores: a tiny BERT with random weights (needs flipout[peft])",
        "paper": "12 minutes of an H200, 11 of them with the seeds side by side and other work running; needs the "
        "ratings in FLIPOUT_DATA and flipout[lora,peft]",
    },
    work=work,
    draw=draw,
)
