"""The preset named paper is the paper's setting."""

import pytest

from flipout.experiments.large_batch.work import LargeBatchConfig
from flipout.experiments.registry import EXPERIMENTS


@pytest.mark.parametrize("name", ["large-batch-fc", "large-batch-convle"])
def test_the_paper_preset_is_the_papers_setting(name):
    config = EXPERIMENTS[name].config("paper")
    assert isinstance(config, LargeBatchConfig)
    training = config.training
    assert (training.batch, training.learning_rate, training.kl_weight, training.prior) == (8192, 3e-3, 0.1, 1.0)
    assert (training.data, training.embedded, training.hidden, training.width, config.seeds) == (
        "mnist",
        False,
        (512, 512),
        1.0,
        5,
    )
    assert ("local_reparam" in config.schemes) == (training.network == "fc")
