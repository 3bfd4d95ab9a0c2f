"""Networks and data are named as the settings have them."""

from dataclasses import replace

from flipout.experiments.training.names import data_name, network_name, text_name
from flipout.experiments.training.supervised import Supervised


def test_the_papers_network():
    assert network_name(Supervised()) == "a 784-512-512-10 network"
    assert data_name(Supervised()) == "MNIST"


def test_a_small_network_on_digits():
    small = Supervised(hidden=(128, 128), data="digits")
    assert network_name(small) == "a 64-128-128-10 network"
    assert data_name(small) == "scikit-learn's digits"
    assert network_name(replace(small, network="convle", width=1 / 8)) == "ConvLe at 1/8 of its width"


def test_data_that_may_be_replaced_is_not_claimed():
    unknown = Supervised(embedded=True)
    assert network_name(unknown) == "a …-512-512-10 network"
    assert data_name(unknown) == "MNIST or digits"
    assert network_name(replace(unknown, data="digits")) == "a 64-512-512-10 network"


def test_texts():
    assert text_name("ptb_words") == "the words of the Penn Treebank"
    assert text_name("embedded_characters") == "the characters of Python's help"
