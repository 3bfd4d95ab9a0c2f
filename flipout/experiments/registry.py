"""The registry of experiments."""

from .es.presets import ES_BACKPROP_CONVLE, ES_BACKPROP_FC, ES_DISCRETE, ES_IDEAL
from .es.rl.presets import ES_RL
from .es.scaling.presets import ES_SCALING
from .language.presets import PTB_CHAR, PTB_LARGE_BATCH, PTB_WORD
from .large_batch.presets import LARGE_BATCH_CONVLE, LARGE_BATCH_FC
from .posterior.presets import POSTERIOR_CHECK
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
        PTB_CHAR,
        PTB_WORD,
        PTB_LARGE_BATCH,
        ES_IDEAL,
        ES_BACKPROP_FC,
        ES_BACKPROP_CONVLE,
        ES_DISCRETE,
        ES_RL,
        ES_SCALING,
    )
}
"""Name → experiment: all that `flipout list` shows."""
