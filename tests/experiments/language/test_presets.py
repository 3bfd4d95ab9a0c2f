"""The presets named paper are the paper's settings."""

import pytest

from tests.experiments.language.toys import paper


@pytest.mark.parametrize("name", ["ptb-char", "ptb-word", "ptb-large-batch"])
def test_the_paper_presets_are_the_papers_setting(name):
    config = paper(name)
    training, schedule = config.training, config.training.schedule
    found = (training.optimizer, schedule.rate, training.clip, training.batch, training.precision)
    assert (
        found
        == {
            "ptb-char": ("amsgrad", 0.004, 0.01, 32, "bf16"),
            "ptb-word": ("sgd", 30.0, 0.25, 40, "bf16"),
            "ptb-large-batch": ("adam", 0.001, 0.25, 8192, "bf16"),
        }[name]
    )
    assert config.most == 0
    assert config.text == ("ptb_characters" if name == "ptb-char" else "ptb_words")
    assert config.rows[0].endswith("flipout")
    if name == "ptb-word":
        assert (schedule.epochs, schedule.factor, schedule.patience, training.window) == (100, 4.0, 5, 35)
