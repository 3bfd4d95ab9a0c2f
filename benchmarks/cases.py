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
    "posteriors": Case("a linear layer under structured posteriors, against plain", "CPU", "30 seconds"),
    "convert": Case("perturb() on a model of 101M parameters", "CPU", "5 seconds", True),
    "es": Case("a population's forward pass against inference", "CPU, GPU", "4 to 8 minutes; GPU 1 minute", True),
    "es_rank_one": Case("a population under rank-one flips against inference", "CPU", "1 minute"),
    "es_generate": Case("texts of a population against plain generation", "CPU", "1 minute"),
    "es_traffic": Case("bytes that a fleet exchanges with each worker in a generation", "CPU", "30 seconds"),
    "small": Case("small models on one core: training, acting, predict, an ES step", "CPU", "2 minutes", True),
    "lora": Case("a training step of Bayesian LoRA against plain LoRA", "CPU", "2 minutes"),
    "antithetic": Case("errors of predictions from mirrored samples", "CPU", "2 minutes"),
    "host": Case("Python and launches of a training step, without a device", "CPU", "15 seconds"),
    "fp8": Case("mean, variance and training with perturbations in FP8", "CPU, GPU", "2 minutes"),
    "training_gpu": Case("training steps of linear layers and VGG16 in bf16", "GPU", "2 minutes"),
    "models_gpu": Case("training steps of whole models in bf16, uncaptured", "GPU", "2 minutes"),
    "compiled_gpu": Case("a compiled Llama: step, memory, compile time", "GPU", "4 minutes"),
    "es_llama_gpu": Case("a Llama's population against inference; decoding", "GPU", "3 minutes"),
    "es_generate_gpu": Case("texts of a population against plain generation", "GPU", "3 minutes"),
    "predict_gpu": Case("predict of ResNet-50 against plain inferences", "GPU", "1 minute"),
    "choices_gpu": Case("both ways of each choice that layers make by size", "GPU", "2 minutes"),
}


def listing() -> str:
    """Return the cases as a table, one to a line."""
    lines = [f"  {'case':15} {'runs on':9} {'takes':29} measures"]
    lines += [
        f"{'*' if c.is_default else ' '} {name:15} {c.runs_on:9} {c.takes:29} {c.measures}" for name, c in CASES.items()
    ]
    return "\n".join(lines)
