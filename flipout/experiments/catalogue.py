"""Every experiment, by name."""

from .theorem import THEOREM
from .variance_convgg import VARIANCE_CONVGG
from .variance_fc import VARIANCE_FC
from .variance_multigpu import VARIANCE_MULTIGPU

EXPERIMENTS = {e.name: e for e in (VARIANCE_FC, VARIANCE_CONVGG, VARIANCE_MULTIGPU, THEOREM)}
