"""Language models: the fitness of a member is the reward of what it writes, or of what it chooses."""

from ._choice_accuracy import ChoiceAccuracy
from ._text_reward import TextReward, exact_match

__all__ = ["ChoiceAccuracy", "TextReward", "exact_match"]
