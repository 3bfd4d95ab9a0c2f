"""Every experiment, by name."""

from .es_backprop import ES_BACKPROP_CONVLE, ES_BACKPROP_FC
from .es_discrete import ES_DISCRETE
from .es_ideal import ES_IDEAL
from .es_rl import ES_RL
from .es_scaling import ES_SCALING
from .large_batch_convle import LARGE_BATCH_CONVLE
from .large_batch_fc import LARGE_BATCH_FC
from .posterior_check import POSTERIOR_CHECK
from .ptb_char import PTB_CHAR
from .ptb_large_batch import PTB_LARGE_BATCH
from .ptb_word import PTB_WORD
from .theorem import THEOREM
from .uncertainty import UNCERTAINTY
from .variance_convgg import VARIANCE_CONVGG
from .variance_fc import VARIANCE_FC
from .variance_lstm import VARIANCE_LSTM, VARIANCE_WD_LSTM
from .variance_multigpu import VARIANCE_MULTIGPU

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
