"""The checksums are those that the authors of the data sets, or their mirrors, publish."""

import hashlib

import pytest

from flipout.experiments.data import files
from flipout.experiments.data.checksums import CIFAR10, MNIST, PTB_CHARACTERS, PTB_WORDS, File, spelled

MD5 = {
    "mnist/train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "mnist/train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "mnist/t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "mnist/t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    "cifar10/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar10/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar10/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar10/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar10/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar10/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "ptb/ptb.train.txt": "f26c4b92c5fdc7b3f8c7cdcb991d8420",
    "ptb/ptb.valid.txt": "aa0affc06ff7c36e977d7cd49e3839bf",
    "ptb/ptb.test.txt": "8b80168b89c18661a38ef683c0dc3721",
    "ptb/ptb.char.train.txt": "874909f99060142f6b88cc74c34baaa2",
    "ptb/ptb.char.valid.txt": "9e0fe5bec2a8bf43fd686dc23d5ab8bb",
    "ptb/ptb.char.test.txt": "1f9a2d1afe00f76e8bfbe09a65439681",
}
FILES = [file for data_set in (MNIST, CIFAR10, PTB_WORDS, PTB_CHARACTERS) for file in data_set.files]


def marked(file: File):
    big = file.name.startswith("cifar10") and "_1" not in file.name
    return pytest.param(file, id=file.name, marks=[pytest.mark.slow] if big else [])


def test_every_file_is_compared():
    assert {file.name for file in FILES} == set(MD5)


@pytest.mark.parametrize("file", [marked(file) for file in FILES])
def test_checksums_are_of_what_was_published(real_data, file):
    path = files.find(real_data, file)
    assert path is not None
    content = files.read(real_data, file, "")
    published = path.read_bytes() if file.name.startswith("mnist") else content
    assert hashlib.md5(published).hexdigest() == MD5[file.name]
    assert hashlib.sha256(content).hexdigest() == file.forms[""]


@pytest.mark.parametrize("split", range(3))
def test_a_download_of_words_gives_the_characters(real_data, split):
    words = files.read(real_data, PTB_WORDS.files[split], "")
    assert hashlib.sha256(spelled(words)).hexdigest() == PTB_CHARACTERS.files[split].forms[""]
