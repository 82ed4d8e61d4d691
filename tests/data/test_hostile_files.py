"""Claims: whatever a file of data has become, it is read, or refused by a ValueError or FileNotFoundError that names
it; at once, in little memory. In two of three mutations what stands around the data (a zip, a gzip, an xz, and their
checksums) is made anew, so that the parsers within meet them.

A failure names the numbers of its mutations: `mutated(KINDS[name].files(), random.Random(number))` makes one again.
"""

from __future__ import annotations

import gzip
import io
import lzma
import math
import os
import random
import re
import sys
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet
from scipy import sparse
from scipy.io import savemat

from sparsevae import files as opening
from sparsevae.checks import free_memory
from sparsevae.data import load, read_arff, read_array, read_idx, read_mulan
from sparsevae.data.readers.mulan import read_labels
from sparsevae.data.sets import celeba, dbpedia, har, mnist, smiley, yelp
from sparsevae.files import UNPACKED
from sparsevae.text.reading import read_texts
from tests.claims import test_mutations as folders
from tests.claims.test_mutations import NUMBERS, bounded, judge, outcome, outcomes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs fork, and memory as Linux counts it"),
    pytest.mark.filterwarnings("ignore"),
]
X = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
IMAGES = np.asfortranarray(np.arange(60, dtype=np.uint8).reshape(4, 3, 5))
SMILEYS = {"X": np.eye(2, 1024), "S": np.eye(2, 18), "V": np.linspace(-1, 1, 36).reshape(2, 18)}
Files = dict[str, bytes]  # by their names


# ---- what is mutated -------------------------------------------------------------------------------------------


def saved(write: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
    file = io.BytesIO()
    write(file, *args, **kwargs)
    return file.getvalue()


def matrix(kind: str) -> bytes:
    dense = np.where(X > 0, X, 0)
    return saved(sparse.save_npz, getattr(sparse, f"{kind}_array")(dense), compressed=kind != "csc")


def columns(**options: Any) -> bytes:
    table = {"a": X[:, 0], "b": [1, None, 3, 4, 5, 6, 7], "c": [True, False] * 3 + [None]}
    table["d"] = [Decimal(f"{k}.25") for k in range(7)]
    return saved(lambda file: parquet.write_table(pa.table(table), file, **options))


def picture(level: int) -> bytes:
    return saved(Image.fromarray(np.full((109, 89, 3), level, np.uint8)).save, "JPEG")


def archive(files: Files) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return file.getvalue()


def windows() -> dict[str, np.ndarray]:
    arrays = {"channels": np.array(har.CHANNELS)}
    for split, n in (("train", 3), ("test", 2)):
        arrays[f"x_{split}"] = np.sin(np.arange(n * 9 * 128, dtype=np.float32)).reshape(n, 9, 128)
        arrays[f"y_{split}"] = arrays[f"subject_{split}"] = np.arange(n, dtype=np.int8) + 1
    return arrays


def original() -> Files:
    """The folder that UCI HAR is published as, with its features; the windows only by name."""
    files = {"features.txt": "".join(f"{i} feature-{i}()\n" for i in range(1, 562)).encode()}
    for split, n in (("train", 3), ("test", 2)):
        files[f"{split}/X_{split}.txt"] = saved(np.savetxt, np.sin(np.arange(n * 561)).reshape(n, 561), fmt="%.2e")
        files[f"{split}/y_{split}.txt"] = files[f"{split}/subject_{split}.txt"] = saved(
            np.savetxt, 1 + np.arange(n), "%d"
        )
    return files


def digits() -> Files:
    """The four files of MNIST, of six pictures each."""
    pictures = b"\0\0\x08\3\0\0\0\6\0\0\0\x1c\0\0\0\x1c" + bytes(range(256)) * 18 + bytes(96)
    labels = b"\0\0\x08\1\0\0\0\6" + bytes(range(6))
    return dict(zip(mnist.FILES, 2 * [gzip.compress(data, mtime=0) for data in (pictures, labels)], strict=True))


IDX = b"\0\0\x08\3\0\0\0\2\0\0\0\3\0\0\0\4" + bytes(range(24))
DOUBLES = b"\0\0\x0e\2\0\0\0\2\0\0\0\3" + X[:2, :3].astype(">f8").tobytes()
ARFF = b"""% songs
@relation 'a set'
@attribute tempo real
@attribute "key, or mode" {minor, 'a major'}
@attribute level {2, 10, 1}
@attribute rock {0, 1}
@attribute jazz {0, 1}
@data
96.5, minor, 2, 0, 1
?, 'a major', 10, 1, 1
-1e3, minor, 1, 0, 0
"""
SPARSE = ARFF[: ARFF.index(b"@data")] + b"@data\n{0 96.5, 1 'a major', 4 1}\n{}\n{2 10, 3 1}\n"
XML = b'<?xml version="1.0" encoding="utf-8"?>\n<labels><label name="rock"><label name="jazz"/></label></labels>'
SENTENCES = b"a cow .\nthe _UNK eats .\n\xc3\xa9t\xc3\xa9 .\n"
TABLE = b"size,ok,count\n1.5,true,3\n,false,4\n-2e3,true,\n"
REVIEWS = b"".join(b"%d\tsource\ta review of %d words\n" % (1 + k % 5, k) for k in range(40))
POOL = b"3\tdhim\tA Cow (2010) is a cow.\n5\tolora\tA horse.\n"
LISTED = b"2\nBald Young\n000001.jpg 1 -1\n000002.jpg -1 1\n"
PARTS = b"000001.jpg 0\n000002.jpg 2\n"


class Kind(NamedTuple):
    """Files of one reader, and how they are read from a folder."""

    read: Callable[[Path], Any]
    files: Callable[[], Files]


def one(read: Callable[[Path], Any], name: str, make: Callable[[], bytes]) -> Kind:
    return Kind(lambda folder: read(folder / name), lambda: {name: make()})


def own(name: str, make: Callable[[], Files], **options: Any) -> Kind:
    """The user's own copy of the files of a set in the catalogue."""

    def read(folder: Path) -> Any:
        with mock.patch.dict(os.environ, SPARSEVAE_DATA=str(folder)):
            return load(name, **options)

    return Kind(read, lambda: {f"{name}/{file}": data for file, data in make().items()})


def array(name: str, make: Callable[[], bytes], **options: Any) -> Kind:
    return one(lambda path: read_array(path, **options), name, make)


KINDS: dict[str, Kind] = {
    "npy": array("x.npy", lambda: saved(np.save, X)),
    "npy of images": array("x.npy", lambda: saved(np.save, IMAGES)),
    "npz": array("x.npz", lambda: saved(np.savez, X)),
    "npz of two": array("x.npz", lambda: saved(np.savez_compressed, train=X, test=X[:2]), key="test"),
    **{f"npz, {kind}": array("x.npz", lambda kind=kind: matrix(kind)) for kind in ("csr", "csc", "coo", "bsr", "dia")},
    "csv": array("x.csv", lambda: TABLE),
    "csv without names": array("x.csv", lambda: saved(np.savetxt, X, delimiter=",")),
    "parquet": array("x.parquet", lambda: columns()),
    "parquet, plain": array("x.parquet", lambda: columns(compression="none", use_dictionary=False)),
    "texts": one(read_texts, "x.txt", lambda: SENTENCES),
    "texts in a csv": one(read_texts, "x.csv", lambda: b'stars,text\n1,"a ""cow"", or\ntwo"\n2,\xc3\xa9t\xc3\xa9\n'),
    "texts in a parquet": one(
        read_texts, "x.parquet", lambda: saved(lambda file: parquet.write_table(pa.table({"a": ["x", "é"] * 3}), file))
    ),
    "arff": one(read_arff, "x.arff", lambda: ARFF),
    "arff, sparse": one(read_arff, "x.arff", lambda: SPARSE),
    "mulan": Kind(
        lambda folder: read_mulan(folder / "x.arff", folder / "x.xml", test=folder / "y.arff"),
        lambda: {"x.arff": ARFF, "y.arff": ARFF.replace(b"96.5", b"0"), "x.xml": XML},
    ),
    "idx": one(read_idx, "x.idx", lambda: IDX),
    "idx of doubles, gzipped": one(read_idx, "x.gz", lambda: gzip.compress(DOUBLES, mtime=0)),
    "mnist": own("mnist", digits),
    "cal500": own("cal500", lambda: {"cal500.arff": ARFF, "cal500.xml": XML}, n_train=2),
    "dbpedia": Kind(
        lambda folder: (dbpedia.make(path=folder), dbpedia.vocabulary(folder)),
        lambda: (
            {"test.tsv.xz": lzma.compress(b"8\ta\n2\tb\n"), "train_pool.tsv.xz": lzma.compress(POOL)}
            | {"vocab.txt.xz": lzma.compress(b"a\nb\n_UNK\n")}
        ),
    ),
    "dbpedia, unpacked": Kind(
        lambda folder: dbpedia.make(path=folder),
        lambda: {"train.txt": SENTENCES, "test.txt": SENTENCES, "test_class_label.txt": b"1\n13\n0\n"},
    ),
    "yelp": Kind(lambda folder: yelp.make(path=folder), lambda: {"reviews.tsv.xz": lzma.compress(REVIEWS)}),
    "celeba, zipped": Kind(
        lambda folder: celeba.make(path=folder, size=4),
        lambda: {"x.zip": archive({f"img/00000{k}.jpg": picture(40 * k) for k in (1, 2)})},
    ),
    "celeba": Kind(
        lambda folder: celeba.make(path=folder, size=4),
        lambda: (
            {"000001.jpg": picture(10), "000002.jpg": picture(90)}
            | {"list_attr_celeba.txt": LISTED, "list_eval_partition.txt": PARTS}
        ),
    ),
    "matlab": Kind(
        lambda folder: smiley.make_authors(path=folder),
        lambda: {smiley.FILE: saved(savemat, SMILEYS)},
    ),
    "matlab, packed": Kind(
        lambda folder: smiley.make_authors(path=folder),
        lambda: {smiley.FILE: saved(savemat, SMILEYS, do_compression=True)},
    ),
    "har": Kind(lambda folder: har.make(path=folder), lambda: {"har_inertial.npz": saved(np.savez, **windows())}),
    "har, original": Kind(lambda folder: har.make(path=folder, features=True), original),
}


# ---- how --------------------------------------------------------------------------------------------------------


def scrambled(data: bytes, rand: random.Random) -> bytes:
    """Flipped bits, another number, a cut, something put in, taken out or written twice."""
    out = bytearray(data)
    at = rand.randrange(len(out) + 1)
    size = rand.choice([1, 2, 8, 100, 1000])
    match rand.randrange(8):
        case 0 | 1:
            for _ in range(rand.choice([1, 1, 2, 20]) if out else 0):
                out[rand.randrange(len(out))] ^= 1 << rand.randrange(8)
        case 2 | 3 if digits := list(re.finditer(rb"\d+", data)):
            place = rand.choice(digits)
            out[place.start() : place.end()] = str(rand.choice(NUMBERS)).encode()
        case 4 | 2 | 3:
            word = rand.choice([0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, rand.randrange(2**32)])
            out[at : at + 4] = word.to_bytes(4, rand.choice(["little", "big"]))
        case 5:
            del out[at : rand.choice([at + size, len(out)])]
        case 6:
            out[at:at] = rand.choice([b"\0" * size, b"\xff" * size, b'"', b"(" * size, b"{", b",", b"\n", b"9" * 5000])
        case 7:
            out[at:at] = out[at : at + size] * rand.choice([1, 2, 50])
    return bytes(out)


ARRAYS = [np.zeros(()), X, np.arange(3), np.array("csc"), np.array("coo"), np.array([2**40, 3]), X.astype(complex)]


def within(data: bytes, rand: random.Random) -> bytes:
    """What a container holds, scrambled, in a container made anew; or some other field of a zip."""
    if data[:2] == b"\x1f\x8b":
        return gzip.compress(scrambled(gzip.decompress(data), rand), mtime=0)
    if data[:6] == b"\xfd7zXZ\0":
        return lzma.compress(scrambled(lzma.decompress(data), rand))
    if data[:4] != b"PK\3\4":
        return scrambled(data, rand)
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    chosen = rand.choice(list(files))
    match rand.randrange(10):
        case 0:
            del files[chosen]
        case 1:
            files[rand.choice(["x.npy", "data.npy", "../x.jpg", "", chosen.upper()])] = files[chosen]
        case 2:
            files[chosen] = rand.choice(list(files.values()))
        case 3 if files[chosen][:6] == b"\x93NUMPY":
            values = rand.choice(
                [np.zeros(()), X, np.arange(3), np.array("csc"), np.array([2**40, 3]), X.astype(complex)]
            )
            files[chosen] = saved(np.save, values)
        case _:
            files[chosen] = scrambled(files[chosen], rand)
    return archive(files)


def mutated(files: Files, rand: random.Random) -> Files:
    """Files of which one was changed; the same for the same state of `rand`."""
    name = rand.choice(sorted(files))
    data = files[name]
    for _ in range(rand.choice([1, 1, 1, 2, 4])):
        try:
            data = scrambled(data, rand) if rand.random() < 1 / 3 else within(data, rand)
        except Exception:  # of a container that is broken already
            data = scrambled(data, rand)
    return files | {name: data}


def reading(kind: Kind, folder: Path) -> Callable[[int], str]:
    """Read the mutation of that number, every value of it."""
    files = kind.files()
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)

    def look(found: Any) -> str:
        for part in found if isinstance(found, (tuple, list)) else [getattr(found, "X", found)]:
            if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
                part.sum()
        return "read"

    def work(seed: int) -> str:
        place = folder / str(os.getpid())
        for name, data in mutated(files, random.Random(seed)).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)

        return outcome(lambda: look(kind.read(place)), ValueError, FileNotFoundError, place=place)

    return work


# ---- the claims -------------------------------------------------------------------------------------------------


def test_mutated_files_of_every_reader_are_read_or_refused_by_name(tmp_path: Path) -> None:
    work = [reading(kind, tmp_path / str(k)) for k, kind in enumerate(KINDS.values())]
    counts = judge(outcomes(lambda seed: work[seed % len(work)](seed), range(8 * len(work)), tmp_path))
    assert min(counts["read"], counts["refused"]) > len(work)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_thirteen_thousand_mutated_files_are_read_or_refused_by_name(name: str, tmp_path: Path) -> None:
    n = 13_000 // len(KINDS) + 1
    counts = judge(outcomes(reading(KINDS[name], tmp_path), range(n), tmp_path, processes=os.cpu_count() or 1))
    assert counts["refused"] > n / 10


@pytest.mark.parametrize("name", KINDS)
def test_what_is_mutated_is_whole_before(name: str, tmp_path: Path) -> None:
    for file, data in KINDS[name].files().items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(data)
    KINDS[name].read(tmp_path)


# ---- files that are none, or promise too much ------------------------------------------------------------------


def zeros(path: Path) -> None:
    path.write_bytes(bytes(10**5))


def brackets(path: Path) -> None:
    path.write_bytes(b"\x93NUMPY\1\0\xff\xff" + b"(" * 10**5)


SPECIAL = [folders._pipe, folders._pipe_by_link, folders._socket, folders._endless, folders._terminal, folders._folder]
SPECIAL += [folders._loop, folders._dangling, folders._sparse, folders._empty, zeros, brackets]
READERS: dict[str, Callable[[Path], Any]] = {
    **dict.fromkeys(("x.npy", "x.npz", "x.csv", "x.parquet"), read_array),
    "texts.txt": read_texts,
    "texts.csv": lambda path: read_texts(path, column="a"),
    "texts.parquet": read_texts,
    "x.arff": read_arff,
    "x.xml": read_labels,
    "x-idx3-ubyte": read_idx,
    "x.mat": lambda path: smiley.make_authors(path=path),
    "reviews.tsv.xz": lambda path: yelp.make(path=path),
    "x.zip": lambda path: celeba.make(path=path),
    "train.txt": lambda path: dbpedia.make(path=path.parent, train=path),
}


def refused(read: Callable[[Path], Any], path: Path) -> str:
    """The error of a reader that takes neither time nor memory to refuse a file by its name."""
    with bounded(2, UNPACKED), pytest.raises((ValueError, FileNotFoundError)) as caught:
        read(path)
    assert len(str(caught.value)) < 2000
    assert path.name in str(caught.value) or isinstance(caught.value, FileNotFoundError)
    return str(caught.value)


@pytest.mark.parametrize("make", SPECIAL, ids=lambda make: make.__name__)
def test_what_is_no_file_of_data_is_refused_at_once_by_every_reader(make: Any, tmp_path: Path) -> None:
    for name, read in READERS.items():
        place = tmp_path / name
        place.mkdir()
        make(place / name)
        if (make, read) == (folders._empty, read_texts) and name.endswith("txt"):
            assert read(place / name) == []
        else:
            refused(read, place / name)


def bomb_of_idx(promise: int, size: int) -> bytes:
    """`size` zeros, gzipped, behind a header that promises some number of them."""
    return gzip.compress(b"\0\0\x08\1" + promise.to_bytes(4, "big") + bytes(size), mtime=0)


def sizes_of_idx(dimensions: int) -> bytes:
    """A header, gzipped, of so many dimensions, each as large as can be."""
    return gzip.compress(b"\0\0\x08" + bytes([dimensions]) + b"\xff" * 4 * dimensions, mtime=0)


def forged(shape: Any, descr: str = "<f8") -> bytes:
    """An .npy whose header says this, and 16 bytes of values."""
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(16)


def encrypted() -> bytes:
    """A zip whose one file says that it is encrypted."""
    data = bytearray(saved(np.savez, X))
    data[6] |= 1
    data[data.rindex(b"PK\1\2") + 8] |= 1
    return bytes(data)


def without_end(rows: int) -> bytes:
    """Three entries in a matrix of so many rows."""
    entries = {"row": np.arange(3), "col": np.arange(3), "data": np.ones(3)}
    return saved(np.savez, format=np.array(b"coo"), shape=np.array([rows, 3]), **entries)


def beyond_the_edge() -> bytes:
    """A CSC matrix with an index far outside: to convert it would write to foreign memory."""
    parts = {"indices": np.array([0, 2**30]), "indptr": np.array([0, 1, 2]), "data": np.ones(2)}
    return saved(np.savez, format=np.array(b"csc"), shape=np.array([2, 2]), **parts)


def laughs() -> bytes:
    lines = "".join(f"<!ENTITY l{k} '{f'&l{k - 1};' * 10}'>" for k in range(1, 10))
    return f"<!DOCTYPE labels [<!ENTITY l0 'ha'>{lines}]><labels><label name='&l9;'/></labels>".encode()


def stretched(width: int, height: int) -> bytes:
    """A JPEG that says it is as large as this."""
    data = bytearray(picture(9))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return archive({"000001.jpg": bytes(data), "000002.jpg": picture(9)})


SHORT = ["@data\n", "{}\n" * 400]
MANY = [f"@attribute a{k} {{1, 2}}\n" for k in range(400)]
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {  # name, content, what the error says
    "idx that promises little": ("x-idx3-ubyte", lambda: bomb_of_idx(10, 10**7), "too long"),
    "idx that promises much": ("x-idx3-ubyte", lambda: bomb_of_idx(10**7, 10**7), "would become 10 MB in memory"),
    "idx that lies": ("x-idx3-ubyte", lambda: bomb_of_idx(2**32 - 1, 10), "would become 4.29 GB in memory"),
    "idx beyond numbers": ("x-idx3-ubyte", lambda: sizes_of_idx(64), "would become over 1,000,000 EB in memory"),
    "idx of 255 dimensions": ("x-idx3-ubyte", lambda: sizes_of_idx(255), "64 dimensions at most, got 255"),
    "npz of zeros": ("x.npz", lambda: saved(np.savez_compressed, np.zeros(10**7, np.int8)), "would become 10 MB"),
    "npz whose header lies": ("x.npz", lambda: archive({"a.npy": forged((10**12,))}), "needs 8,000,000,000,000 bytes"),
    "npz with a shape below zero": ("x.npz", lambda: archive({"a.npy": forged((-2, -1))}), "cannot be read as .npz"),
    "npz without an array": ("x.npz", lambda: archive({"a.npy": b"a text"}), "cannot be read as .npz"),
    "npz of a picture": ("x.npz", lambda: archive({"a.png": b"a text"}), "cannot be read as .npz"),
    "npz of nothing": ("x.npz", lambda: archive({}), "it contains no array"),
    "npz, encrypted": ("x.npz", encrypted, "encrypted"),
    "npz of endless rows": ("x.npz", lambda: without_end(10**9), "would become 8 GB in memory"),
    "npz of more rows than there are numbers": ("x.npz", lambda: without_end(2**62), "not a whole sparse|would become"),
    "npz that points outside": ("x.npz", beyond_the_edge, "not a whole sparse matrix"),
    "npy of more than there is": ("x.npy", lambda: forged((10**12,)), "not a plain, whole .npy file"),
    "npy of huge numbers": ("x.npy", lambda: forged((10**40, 3)), "not a plain, whole .npy file"),
    "npy within npy": ("x.npy", lambda: forged((1,), "(100000,100000)<f8"), "not a plain, whole .npy file"),
    "npy with a header that is code": ("x.npy", lambda: forged("__import__('os')"), "not a plain, whole .npy file"),
    "csv of zero bytes within": ("x.csv", lambda: b"a,b\n1,\0\n", "has zero bytes"),
    "csv in UTF-16": ("x.csv", lambda: "a,b\n1,2\n".encode("utf-16"), "not a text file in UTF-8"),
    "csv with a quote that stays open": ("x.csv", lambda: b'a,b\n1,"' + b"2,3\n" * 10**5, "x.csv"),
    "csv of one line": ("x.csv", lambda: b"1,2.5," * (10**8 // 6), "its first line is longer than"),
    "csv of a million columns": ("x.csv", lambda: b"1," * 10**6 + b"1\n", "1,000,001 columns"),
    "parquet of lists": ("x.parquet", lambda: nested([[1], [2]]), r"convert or leave out column a \(list"),
    "parquet of records": ("x.parquet", lambda: nested([{"b": 1}] * 2), r"convert or leave out column a \(struct"),
    "xz of zeros": ("reviews.tsv.xz", lambda: lzma.compress(b"1\ta\t" + b"b" * 10**7, preset=0), "would become"),
    "arff whose short rows are long": (
        "x.arff",
        lambda: "".join([*MANY, "@data\n", "{}\n" * 3000]).encode(),
        "would bec",
    ),
    "xml of entities": ("x.xml", laughs, "the entity 'l0' is declared"),
    "xml without an end": ("x.xml", lambda: b"<labels><label name='0'>" + b"<label>" * 10**5, "without a name"),
    "pictures without end": ("x.zip", lambda: stretched(65_000, 65_000), "not a whole JPEG|got 65000 x 65000"),
    "zip of one long picture": ("x.zip", lambda: archive({"1.jpg": bytes(10**7)}), "would become 10 MB"),
}


def nested(values: list[Any]) -> bytes:
    return saved(lambda file: parquet.write_table(pa.table({"a": values}), file))


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_promises_too_much_is_refused_at_once(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    """With a limit of one megabyte, so that bombs are small."""
    monkeypatch.setattr(opening, "UNPACKED", 2**20)
    file, make, message = BOMBS[name]
    (tmp_path / file).write_bytes(make())
    assert re.search(message, refused(READERS[file], tmp_path / file))


@pytest.mark.parametrize("file", ["x-idx3-ubyte", "x.npz"])
def test_packed_data_below_the_limit_are_read_whatever_they_are_packed_by(file: str, tmp_path: Path) -> None:
    """Zeros shrink to a thousandth, and are honest data."""
    values = np.zeros((1000, 1000), np.uint8)
    head = b"\0\0\x08\2" + 2 * (1000).to_bytes(4, "big")
    data = gzip.compress(head + values.tobytes()) if file[1] == "-" else saved(np.savez_compressed, values)
    (tmp_path / file).write_bytes(data)
    assert len(data) < values.nbytes / 500
    found = READERS[file](tmp_path / file)
    np.testing.assert_array_equal(getattr(found, "X", found), values)


def test_a_file_that_memory_does_not_hold_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(opening, "free_memory", lambda: 1000)
    message = r"would take [\d.]+ kB of memory, and 1 kB are free"
    for file, data in [
        ("x.npz", saved(np.savez, np.zeros((20, 20)))),
        ("x.csv", b"1,2\n" * 200),
        ("x.parquet", saved(pd.DataFrame({"a": np.arange(1000.0)}).to_parquet)),
        ("x-idx3-ubyte", b"\0\0\x08\1\0\0\4\0" + bytes(1024)),
        ("texts.txt", b"a text\n" * 100),
    ]:
        (tmp_path / file).write_bytes(data)
        assert re.search(message, refused(READERS[file], tmp_path / file))


def test_free_memory_is_the_least_of_what_machine_and_cgroup_leave(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    assert free_memory(tmp_path / "meminfo", tmp_path) == 5000 * 1024
    assert free_memory(tmp_path / "none", tmp_path) == math.inf
    for name, text in (
        ("memory.max", "max"),
        ("memory.current", "2000"),
        ("memory.stat", "anon 1\ninactive_file 500\n"),
    ):
        (tmp_path / name).write_text(text + "\n")
    assert free_memory(tmp_path / "none", tmp_path) == math.inf
    (tmp_path / "memory.max").write_text("4000\n")
    assert free_memory(tmp_path / "meminfo", tmp_path) == 2500
