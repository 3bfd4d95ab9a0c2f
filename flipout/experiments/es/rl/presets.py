"""The experiment on policies."""

from ...running.experiment import Experiment
from .work import RlConfig, draw, work

ES_RL = Experiment(
    name="es-rl",
    title="Policies by FlipES and IdealES: CartPole, and Hopper of MuJoCo",
    claim="Evolution strategies with flipout learn policies as well, generation by generation, as with fully "
    "independent perturbations.",
    presets={
        "smoke": RlConfig(generations=3, population=40, group=20, seeds=2, evaluated=4, draws=10, drawn_steps=20),
        "quick": RlConfig(),
        "paper": RlConfig(
            environment="Hopper-v5",
            bar=1000.0,
            methods=("FlipES", "IdealES", "rank_one"),
            hidden=(32, 32),
            population=160,
            std=0.05,
            learning_rate=0.02,
            # By then both stand upright, with a return of about 1,000; a trial of 120 generations reached 1,320.
            generations=50,
            seeds=5,
        ),
    },
    costs={
        "smoke": "seconds (needs flipout[rl])",
        "quick": "2.5 minutes on one core (needs flipout[rl])",
        "paper": "2 to 4 hours on one core; needs flipout[rl]",
    },
    work=work,
    draw=draw,
    describe=lambda config: (
        f"Policies by {', '.join(config.methods[:-1])} and {config.methods[-1]} in {config.environment}"
    ),
)
