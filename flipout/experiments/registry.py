"""The registry of experiments."""

import json

from flipout_command import CATALOGUE

from .es.llm.presets import ES_LLM
from .es.noise.presets import ES_ESTIMATES
from .es.presets import ES_BACKPROP_CONVLE, ES_BACKPROP_FC, ES_DISCRETE, ES_IDEAL
from .es.rl.presets import ES_RL
from .es.scaling.presets import ES_SCALING
from .es.tuning.presets import ES_TUNING
from .language.presets import PTB_CHAR, PTB_LARGE_BATCH, PTB_WORD
from .large_batch.presets import LARGE_BATCH_CONVLE, LARGE_BATCH_FC
from .lora.known_spread import LORA_INFORMATION
from .lora.presets import BAYESIAN_LORA
from .lora.sentiment.presets import LORA_SENTIMENT
from .posterior.presets import POSTERIOR_CHECK
from .shift.presets import SHIFT
from .uci.presets import UCI
from .uncertainty.presets import UNCERTAINTY
from .variance.language_presets import VARIANCE_LSTM, VARIANCE_WD_LSTM
from .variance.presets import THEOREM, VARIANCE_CONVGG, VARIANCE_FC, VARIANCE_MULTIGPU

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        VARIANCE_FC,
        VARIANCE_CONVGG,
        VARIANCE_LSTM,
        VARIANCE_WD_LSTM,
        VARIANCE_MULTIGPU,
        THEOREM,
        LARGE_BATCH_FC,
        LARGE_BATCH_CONVLE,
        POSTERIOR_CHECK,
        UNCERTAINTY,
        UCI,
        SHIFT,
        BAYESIAN_LORA,
        LORA_SENTIMENT,
        LORA_INFORMATION,
        PTB_CHAR,
        PTB_WORD,
        PTB_LARGE_BATCH,
        ES_IDEAL,
        ES_BACKPROP_FC,
        ES_BACKPROP_CONVLE,
        ES_DISCRETE,
        ES_RL,
        ES_SCALING,
        ES_TUNING,
        ES_ESTIMATES,
        ES_LLM,
    )
}
"""Name → experiment: all that `flipout list` shows."""


def catalogue() -> str:
    """Return name, title and costs of every experiment as JSON: what `flipout list` shows without loading PyTorch."""
    entries = [{"name": e.name, "title": e.title, "costs": dict(e.costs)} for e in EXPERIMENTS.values()]
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":  # python -m flipout.experiments.registry
    CATALOGUE.write_text(catalogue(), encoding="utf-8")
