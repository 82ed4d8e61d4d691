"""CelebA: aligned photographs of faces, cropped to small squares, with forty attributes."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sparsevae.checks import POSITIVE
from sparsevae.data.dataset import Dataset
from sparsevae.data.fetch import ByHand
from sparsevae.exceptions import DataFileError, unknown
from sparsevae.files import check_size, opened, parsing, read_all, read_lines, size_of
from sparsevae.parameters import check_value

ABOUT = (
    "202,599 aligned photographs of 10,177 celebrities with 40 binary attributes (Liu, Luo, Wang and Tang), cropped "
    "to the face and made small, in colour; for non-commercial research only, not to be passed on."
)
CELEBA = ByHand(
    "celeba",
    ("celeba", "celeba-10k"),
    ("*.zip", "**/*.jpg"),
    "Its terms forbid passing it on: accept them at https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html and "
    "download img_align_celeba.zip (aligned and cropped images); for labels list_attr_celeba.txt, for the official "
    "split list_eval_partition.txt. Unpacked or not, both are read.",
)
SIZES = ((178, 218), (89, 109))  # width x height: as published, and at half the size
CROP = (0, 10, 89, 99)  # left, top, right, bottom of the square, at half the size
ATTRIBUTES = ("list_attr_celeba.txt", "list_attr_celeba.csv", "attributes.csv", "attributes.csv.xz")
PARTITION = ("list_eval_partition.txt", "list_eval_partition.csv")
PARTS = {"validation": 1, "test": 2}  # 0 is training
BLOCK = 256  # pictures that a thread decodes at a time


def make(
    *,
    path: str | os.PathLike[str] | None = None,
    size: int = 32,
    n: int | None = None,
    test: str = "test",
) -> Dataset:
    """Decode the pictures: crop each to a square of its full width around the face, resized to ``size`` x ``size``.

    The square is rows 20 .. 197 of the published 178 x 218 pixels (rows 10 .. 98 of pictures at half that size);
    resizing averages with a triangle as wide as the reduction (PIL's antialiased bilinear filter).

    The split is the official one if ``list_eval_partition.txt`` (or ``.csv``) is beside the pictures: X is the
    training part (162,770 pictures of the whole set), X_test the part named by ``test``. Without that file the
    last tenth of the pictures, in the order of their names, is the test set.

    Parameters
    ----------
    path : str, path or None
        A folder of .jpg files (folders inside it are searched too) or one with a zip of them, or the zip. None
        means ``$SPARSEVAE_DATA/celeba/`` or ``$SPARSEVAE_DATA/celeba-10k/``.
    size : int
        Side of the result in pixels.
    n : int or None
        Only the first n pictures, in the order of their names, before the split.
    test : "test" or "validation"
        Which official part is X_test; "validation" needs list_eval_partition.

    Returns
    -------
    Dataset with X of shape (n, size * size * 3), uint8, each row a (size, size, 3) picture: height, width, colour.
    If the list of attributes is beside the pictures (``list_attr_celeba.txt`` or ``.csv``), y has shape (n, 40),
    uint8 0/1, and ``label_names`` are their names.
    """
    POSITIVE.check("size", size, whole=True)
    check_value("n", n, int | None, [POSITIVE])
    if test not in PARTS:
        raise ValueError(unknown("part", test, PARTS))
    with _pictures(CELEBA.find(path)) as (members, read, folder):
        members = members[:n]
        names = [_name(member) for member in members]
        attributes, partition = _table(folder, ATTRIBUTES), _table(folder, PARTITION)
        if partition:
            part = partition.rows(names)[:, 0]
            splits = [np.flatnonzero(part == 0), np.flatnonzero(part == PARTS[test])]
        elif test != "test":
            raise CELEBA.missing(f"test={test!r} is an official part, and {folder} has no {PARTITION[0]}")
        else:
            cut = len(names) - len(names) // 10
            splits = [np.arange(cut), np.arange(cut, len(names))]
        if not splits[0].size:
            raise ValueError(f"{folder}: none of the {len(names)} pictures belongs to the training part")
        X, X_test = (_decode([members[i] for i in split], read, size) for split in splits)
    # -1 and 1 in the published list, 0 and 1 in some copies
    labels = (attributes.rows(names) > 0).astype(np.uint8) if attributes else None
    y, y_test = (None if labels is None else labels[split] for split in splits)
    test_part = (X_test, y_test) if len(X_test) else (None, None)
    columns = (attributes.columns or None) if attributes else None
    return Dataset("celeba", X, test_part[0], y, test_part[1], (size, size, 3), label_names=columns, about=ABOUT)


def _name(member: str) -> str:
    return member.replace(os.sep, "/").rpartition("/")[2]


@contextmanager
def _pictures(found: Path) -> Iterator[tuple[list[str], Callable[[str], tuple[str, bytes]], Path]]:
    """The pictures in the order of their names, a function that reads one, and the folder of the published lists."""
    folder = found if found.is_dir() else found.parent
    members = _sorted(map(str, found.glob("**/*.jpg")), found) if found.is_dir() else []
    if members:
        yield members, lambda member: (member, read_all(member)), folder
        return
    archives = sorted(found.glob("*.zip")) if found.is_dir() else [found]
    if len(archives) > 1:  # the official folder also offers other archives
        archives = [archive for archive in archives if archive.name == "img_align_celeba.zip"] or archives
    if len(archives) != 1:
        found_in = ", ".join(archive.name for archive in archives) or "neither"
        raise CELEBA.missing(f"expected .jpg files or one .zip of them in {found}, got {found_in}")
    with opened(archives[0]) as file:
        with parsing(archives[0], "expected a folder, or a zip of .jpg files"):
            archive = zipfile.ZipFile(file)
        members = _sorted(archive.namelist(), archives[0])
        if not members:
            raise CELEBA.missing(f"no .jpg file in {archives[0]}")

        def read(member: str) -> tuple[str, bytes]:
            place = f"{archives[0]}, {member}"
            check_size(place, archive.getinfo(member).file_size, size_of(file))
            with parsing(place, "not a whole file in a zip"):
                return place, archive.read(member)

        yield members, read, folder


def _sorted(files: Iterable[str], found: Path) -> list[str]:
    """The pictures among the files, in the order of their names, which must differ."""
    # an archive made on a Mac has a second file "._000001.jpg" for every picture
    members = sorted((f for f in files if f.endswith(".jpg") and not _name(f).startswith("._")), key=_name)
    for one, other in pairwise(members):
        if _name(one) == _name(other):
            raise ValueError(f"{found}: two pictures of one name, {one} and {other}; choose one folder with path=")
    return members


class _Table(NamedTuple):
    """A published list: name of a picture -> its row of small integers, and the names of the columns."""

    file: Path
    columns: tuple[str, ...]
    values: dict[str, np.ndarray]

    def rows(self, names: Sequence[str]) -> np.ndarray:
        """The rows of these pictures; (len(names), number of columns)."""
        for name in names:
            if name not in self.values:
                raise ValueError(f"{self.file}: no line for {name}")
        return np.array([self.values[name] for name in names])


def _table(folder: Path, files: Sequence[str]) -> _Table | None:
    """Read the first of ``files`` in the folder, in Anno or Eval inside it, or in the folder above.

    A line is the name of a picture and its numbers, between blanks or commas. Lines before the first picture are the
    header: the published lists have the number of pictures, then the names of the columns; or no header at all.
    """
    places = (folder, folder / "Anno", folder / "Eval", folder.parent)
    found = next((place / file for place in places for file in files if (place / file).is_file()), None)
    if found is None:
        return None
    header: list[str] = []
    values: dict[str, np.ndarray] = {}
    for line in read_lines(found):
        cells = re.split(r"[\s,]+", line.strip())
        if cells[0].endswith(".jpg"):
            with parsing(found, f"expected whole numbers after {cells[0][:40]}"):
                values[cells[0]] = np.array(cells[1:], dtype=np.int8)
        elif not values:
            header = cells
    widths = {len(row) for row in values.values()}
    if len(widths) != 1 or not min(widths):
        raise ValueError(f"{found}: expected lines such as '000001.jpg 0 1 1', all of one length")
    width = widths.pop()
    if 0 < len(header) < width:
        raise ValueError(f"{found}: expected the names of {width} columns before the first picture, got {len(header)}")
    return _Table(found, tuple(header[-width:]), values)


def _decode(members: Sequence[str], read: Callable[[str], tuple[str, bytes]], size: int) -> np.ndarray:
    """Decode pictures to rows, (len(members), size * size * 3) uint8."""
    from PIL import Image

    out = np.empty((len(members), size, size, 3), dtype=np.uint8)

    def fill(start: int) -> None:
        for i, member in enumerate(members[start : start + BLOCK], start):
            place, content = read(member)
            if content[:2] != b"\xff\xd8":
                raise DataFileError(f"{place}: not a whole JPEG picture (it does not begin as one)")
            with (
                parsing(place, "not a whole JPEG picture"),
                Image.open(io.BytesIO(content), formats=("JPEG",)) as picture,
            ):
                if picture.size not in SIZES:
                    raise DataFileError(
                        f"{place}: expected an aligned picture of 178 x 218 pixels, or 89 x 109, "
                        f"got {picture.size[0]} x {picture.size[1]}"
                    )
                scale = picture.size[0] / SIZES[1][0]
                left, top, right, bottom = (scale * edge for edge in CROP)
                square = (left, top, right, bottom)
                out[i] = np.asarray(picture.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, square))

    # PIL releases the GIL while it decodes, so threads are faster
    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, len(members), BLOCK)))
    return out.reshape(len(members), size * size * 3)
