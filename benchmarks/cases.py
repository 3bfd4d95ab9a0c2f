"""The benchmark cases: what each measures, where it runs, and how long it takes."""

from typing import NamedTuple


class Case(NamedTuple):
    measures: str
    runs_on: str  # "CPU", "GPU", or "CPU, GPU" for a case that measures a GPU if there is one
    takes: str
    is_default: bool = False


# Times were measured on two shared cores of an AMD EPYC, and on one H200.
CASES = {
    "linear": Case("a training step of a linear layer, flipout against shared", "CPU", "1 minute", True),
    "conv": Case("a training step of a convolution, flipout against shared", "CPU", "15 seconds", True),
    "recurrent": Case("a training step of an LSTM against torch.nn.LSTM", "CPU, GPU", "1 minute; GPU 2 minutes", True),
    "schemes": Case("a training step of a linear layer under every scheme", "CPU, GPU", "30 seconds", True),
    "convert": Case("perturb() on a model of 101M parameters", "CPU", "5 seconds", True),
    "es": Case("a population's forward pass against inference", "CPU, GPU", "4 to 8 minutes; GPU 1 minute", True),
    "small": Case("small models on one core: training, predict, an ES step", "CPU", "2 minutes", True),
    "host": Case("Python and launches of a training step, without a device", "CPU", "15 seconds"),
    "fp8": Case("mean, variance and training with perturbations in FP8", "CPU, GPU", "2 minutes"),
    "training_gpu": Case("training steps of linear layers and VGG16 in bf16", "GPU", "2 minutes"),
    "choices_gpu": Case("both ways of each choice that layers make by size", "GPU", "2 minutes"),
}


def listing() -> str:
    """Return the cases as a table, one to a line."""
    lines = [f"  {'case':13} {'runs on':9} {'takes':29} measures"]
    lines += [
        f"{'*' if c.is_default else ' '} {name:13} {c.runs_on:9} {c.takes:29} {c.measures}" for name, c in CASES.items()
    ]
    return "\n".join(lines)
