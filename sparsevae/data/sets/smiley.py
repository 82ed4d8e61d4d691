"""Smileys with a bow tie, a hat, eyes and a mouth: binary images with 18 known sparse sources.

After the artificial data set of Tonolini, Jensen and Murray-Smith, "Variational Sparse Coding" (UAI 2019).
An attribute is on or off as a whole; an attribute that is on is painted with a few continuous values.
So the sources of a row are S * V, exactly zero for the attributes that are off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsevae.checks import In
from sparsevae.data.dataset import Dataset, check_generated, generate
from sparsevae.data.fetch import ByHand
from sparsevae.exceptions import DataFileError, unknown
from sparsevae.files import check_size, opened, parsing, size_of

Values: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
# Source -> (base, scale), in the order of the columns of S and V. The length or offset of a part of the picture is
# base + scale * v pixels, v being the value of the source; x and y are offsets from the centre, right and down.
GEOMETRY: dict[str, tuple[float, float]] = {
    "bowtie.x": (0.0, 0.5),
    "bowtie.y": (12.5, 1.0),
    "bowtie.width": (12.0, 3.0),
    "bowtie.height": (5.0, 2.0),
    "hat.x": (0.0, 1.0),
    "hat.y": (-10.5, 1.0),  # of the brim's middle
    "hat.brim_width": (15.0, 3.0),
    "hat.brim_height": (2.0, 2.0),
    "hat.crown_width": (10.0, 2.0),
    "hat.crown_height": (2.0, 1.0),
    "eyes.spread": (4.0, 1.0),  # of each eye from the middle
    "eyes.y": (-2.5, 1.0),
    "eyes.radius": (2.0, 1.0),
    "mouth.width": (4.0, 1.0),
    "mouth.height": (2.0, 1.0),
    "mouth.x": (-0.5, 0.5),
    "mouth.y": (5.5, 0.5),
    "mouth.curl": (0.0, 1.0),  # of the corners, positive is sad
}
SOURCES: tuple[str, ...] = tuple(GEOMETRY)
GROUPS: dict[str, slice] = {
    "bowtie": slice(0, 4),
    "hat": slice(4, 10),
    "eyes": slice(10, 13),
    "mouth": slice(13, 18),
}
ABOUT = (
    "Binary smileys of 32 x 32 pixels with four optional attributes and 18 sparse sources, after the "
    "artificial set of Tonolini et al., 'Variational Sparse Coding'; generated here, with the sources as "
    "ground truth."
)
ABOUT_AUTHORS = (
    "The published test file of Tonolini, Jensen and Murray-Smith's artificial Smiley set ('Variational Sparse "
    "Coding', UAI 2019): 20,000 images with their sources, all of them as X; no licence stated."
)
FILE = "smily_sparse_dataset_test_Alpha05.mat"  # spelt as published
AUTHORS = ByHand(
    "smiley-authors",
    ("smiley-authors", "vsc-smiley"),
    (FILE,),
    f"The file is {FILE}, in Data_Sets/Smiley of https://github.com/ftonolini45/Variational_Sparse_Coding (no "
    "licence is stated there, so it is not fetched for you). data.load('smiley') draws such images without it.",
)
BOW = (0.22, 0.7625, 0.27, 0.77)  # tip, slope, knot, wing; see draw
_ARRAYS = ("X", "S", "V")  # of that file
BLOCK = 2048  # images drawn at a time


def make(
    n: int = 60_000,
    n_test: int = 20_000,
    *,
    p_attribute: float | Mapping[str, float] = 0.5,
    value_std: float = 0.5,
    size: int = 32,
    head_radius: float = 10.0,
    geometry: Mapping[str, tuple[float, float]] | None = None,
    curl_ratio: float = 1.4,
    bow: tuple[float, float, float, float] = BOW,
    seed: int = 0,
) -> Dataset:
    """Draw smileys: s_a ~ Bernoulli(p_attribute) for 4 attributes, v_j ~ N(0, value_std^2) for 18 sources.

    Parameters
    ----------
    n, n_test : int
        Training and test images, from independent streams.
    p_attribute : float, or dict such as ``{"hat": 0.1}``
        Probability that an attribute is on; attributes a dict leaves out keep 0.5.
    value_std : float
        Standard deviation of every source.
    size, head_radius, geometry, curl_ratio, bow
        The drawing; see :func:`draw`.
    seed : int
        The same seed gives the same bytes; the first rows do not depend on n.

    Returns
    -------
    Dataset with X of shape (n, size * size), uint8 0/1, row by row, and in ``truth``:

    - ``S``, (n, 18) uint8: 1 where the source's attribute is on (columns of one of ``GROUPS`` are equal),
    - ``V``, (n, 18) float32: the values, also of sources that are off. The sources are S * V.

    Examples
    --------
    >>> d = make(3, 0)
    >>> d.X.shape, d.truth["S"].shape, SOURCES[:2]
    ((3, 1024), (3, 18), ('bowtie.x', 'bowtie.y'))
    >>> bool((draw(d.truth["S"], d.truth["V"]) == d.X).all())  # a row is a function of its sources
    True
    """
    check_generated(n, n_test, seed, size**2, size=size)
    In(0).check("value_std", value_std)
    if len(bow) != len(BOW):
        raise ValueError(f"bow must be {len(BOW)} numbers: tip, slope, knot, wing; got {bow!r}")
    p_on = np.array(_probabilities(p_attribute))
    sizes = [columns.stop - columns.start for columns in GROUPS.values()]

    def split(stream: np.random.SeedSequence, n: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        gates, values = (np.random.default_rng(child) for child in stream.spawn(2))
        S = np.repeat(gates.random((n, len(GROUPS))) < p_on, sizes, axis=1).astype(np.uint8)
        V = np.float32(value_std) * values.standard_normal((n, len(SOURCES)), dtype=np.float32)
        X = draw(S, V, size=size, head_radius=head_radius, geometry=geometry, curl_ratio=curl_ratio, bow=bow)
        return X, {"S": S, "V": V}

    return generate("smiley", n, n_test, seed, split, split, image_shape=(size, size), about=ABOUT)


def make_authors(*, path: str | os.PathLike[str] | None = None) -> Dataset:
    """Read the images and sources that the authors of the paper published: their test file, all of it in X.

    For training use :func:`make`. Its images have the same distribution but for the shape of the bow tie; painted from
    these sources they agree with these images in every pixel outside the box of the tie.

    Parameters
    ----------
    path : str, path or None
        The file, or the folder that holds it; None looks in ``$SPARSEVAE_DATA``.

    Returns
    -------
    Dataset with X of shape (20000, 1024), uint8 0/1, row by row (the file is column by column), no X_test, and
    in ``truth`` the authors' ``S`` and ``V`` as :func:`make` has them; V is float64, as stored.
    """
    file = AUTHORS.find(path, FILE)
    with opened(file) as content:
        arrays = _matlab(file, content)
    shapes = {key: arrays[key].shape if key in arrays else None for key in _ARRAYS}
    n = shapes["X"][0] if shapes["X"] else 0
    if shapes != {"X": (n, 1024), "S": (n, len(SOURCES)), "V": (n, len(SOURCES))}:
        raise ValueError(f"{file}: expected X (n, 1024), S and V (n, {len(SOURCES)}); got {shapes}")
    for key, values in arrays.items():
        if values.dtype.kind not in "biuf" or (key != "V" and not ((values == 0) | (values == 1)).all()):
            raise ValueError(f"{file}: expected {key} of {'numbers' if key == 'V' else 'zeros and ones'}")
    X = arrays["X"].reshape(n, 32, 32).transpose(0, 2, 1).reshape(n, 1024)
    return Dataset(
        "smiley-authors",
        X=X.astype(np.uint8),
        image_shape=(32, 32),
        truth={"S": arrays["S"].astype(np.uint8), "V": arrays["V"]},
        about=ABOUT_AUTHORS,
    )


def _matlab(path: Path, content: Any) -> dict[str, np.ndarray]:
    """Those of the three arrays X, S and V that a MATLAB file contains."""
    from scipy.io import loadmat, whosmat

    if content.read(10) != b"MATLAB 5.0":  # older formats have no signature: any bytes would be read
        raise DataFileError(f"{path}: not a whole MATLAB file (expected MATLAB 5.0, the published format)")
    content.seek(0)
    with parsing(path, "not a whole MATLAB file"):
        known = [shape for name, shape, _ in whosmat(content) if name in _ARRAYS]
    check_size(path, sum(8 * math.prod(shape) for shape in known), size_of(content))
    content.seek(0)
    with parsing(path, "not a whole MATLAB file"):
        arrays = loadmat(content, variable_names=_ARRAYS)
        return {key: np.asarray(arrays[key]) for key in _ARRAYS if key in arrays}


def draw(
    S: np.ndarray,
    V: np.ndarray,
    *,
    size: int = 32,
    head_radius: float = 10.0,
    geometry: Mapping[str, tuple[float, float]] | None = None,
    curl_ratio: float = 1.4,
    bow: tuple[float, float, float, float] = BOW,
) -> np.ndarray:
    """Paint one smiley for each row of sources; no randomness.

    The parts are painted in this order, so a hat covers eyes that are very high:

    1. head: white disc of ``head_radius`` around the centre of the image;
    2. bow tie: two white triangles that meet in the middle, in a knot;
    3. eyes: two black discs, as far to the left as to the right;
    4. mouth: black rectangle, its sides rounded to pixels, and two corner pixels on either side, the first
       ``curl`` and the second ``curl_ratio * curl`` pixels below the mouth's middle;
    5. hat: white brim, and on it a white crown.

    Parameters
    ----------
    S : array of shape (n, 18), 0/1
    V : array of shape (n, 18)
    size : int
        Side of the image. The drawing is measured in pixels from the centre, so a larger image has more
        space around the same face.
    head_radius : float
    geometry : dict of name -> (base, scale), or None
        Entries that replace those of ``GEOMETRY``.
    curl_ratio : float
    bow : (tip, slope, knot, wing)
        In a box [-1, 1] x [-1, 1], at distance u from the middle, the tie reaches from -h to h with
        h = tip + slope |u|, but at least knot and at most wing. The default is fitted to the authors'
        test images, whose tie is a picture made small: four ties in five agree pixel by pixel.

    Returns
    -------
    uint8 array of shape (n, size * size), 0/1, row by row from the top left.
    """
    S, V = np.asarray(S), np.asarray(V)
    if S.shape != V.shape or S.shape[1:] != (len(SOURCES),):
        raise ValueError(f"S and V must have equal shapes (n, {len(SOURCES)}), got {S.shape} and {V.shape}")
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    base, scale = np.array(list(_geometry(geometry).values())).T
    out = np.empty((len(S), size, size), dtype=bool)
    for start in range(0, len(S), BLOCK):
        block = slice(start, start + BLOCK)
        parts = (base + scale * V[block].astype(np.float64)).T[:, :, None]  # (18, b, 1)
        on = {name: S[block, columns.start, None, None].astype(bool) for name, columns in GROUPS.items()}
        easel = _Easel(size)
        face = np.broadcast_to(easel.disc(0.0, 0.0, head_radius), out[block].shape)
        face = face | (on["bowtie"] & _bowtie(easel, bow, parts[GROUPS["bowtie"]]))
        face &= ~(on["eyes"] & _eyes(easel, parts[GROUPS["eyes"]]))
        face &= ~(on["mouth"] & _mouth(easel, curl_ratio, parts[GROUPS["mouth"]]))
        face |= on["hat"] & _hat(easel, parts[GROUPS["hat"]])
        out[block] = face
    return out.reshape(len(S), size * size).astype(np.uint8)


class _Easel:
    """Pixels 0 .. size-1 in both directions, and shapes on them as (b, size, size) masks.

    The parameters of a shape are (b, 1) columns, or single numbers; x, y are offsets from the centre of the image,
    which is pixel (size - 1) / 2.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.pixel = np.arange(size)
        self.offset = self.pixel - (size - 1) / 2

    def nearest(self, offset: Values) -> Values:
        """The pixel nearest to an offset; halves are rounded up."""
        return np.floor(offset + self.size / 2)

    def span(self, first: Values, last: Values) -> Mask:
        """True for pixels first .. last, both included; (b, size)."""
        return (self.pixel >= first) & (self.pixel <= last)

    def centred(self, middle: Values, length: Values) -> Mask:
        """True for pixels within half a length of the middle, both ends rounded to pixels; (b, size)."""
        return self.span(self.nearest(middle - length / 2), self.nearest(middle + length / 2))

    def disc(self, x: Values | float, y: Values | float, radius: Values | float) -> Mask:
        across = np.atleast_2d((self.offset - x) ** 2)[:, None, :]
        down = np.atleast_2d((self.offset - y) ** 2)[:, :, None]
        radius = np.atleast_2d(radius)[..., None]
        return (across + down <= radius**2) & (radius >= 0)


def _box(rows: Mask, columns: Mask) -> Mask:
    """(b, size) rows and (b, size) columns to a (b, size, size) mask."""
    return rows[:, :, None] & columns[:, None, :]


def _eyes(easel: _Easel, parts: Values) -> Mask:
    spread, y, radius = parts
    return easel.disc(-spread, y, radius) | easel.disc(spread, y, radius)


def _mouth(easel: _Easel, curl_ratio: float, parts: Values) -> Mask:
    width, height, x, y, curl = parts
    left, right = easel.nearest(x - width / 2), easel.nearest(x + width / 2)
    mask = _box(easel.centred(y, height), easel.span(left, right))
    for step, drop in ((1, curl), (2, curl_ratio * curl)):
        corner = easel.nearest(y + drop)
        mask |= _box(easel.pixel == corner, (easel.pixel == left - step) | (easel.pixel == right + step))
    return mask


def _hat(easel: _Easel, parts: Values) -> Mask:
    x, y, brim_width, brim_height, crown_width, crown_height = parts
    top, bottom = easel.nearest(y - brim_height / 2), easel.nearest(y + brim_height / 2)
    crown_top = np.floor(top - crown_height + 0.5)  # the crown is on the brim's rounded pixels
    brim = _box(easel.span(top, bottom), easel.centred(x, brim_width))
    return brim | _box(easel.span(crown_top, top), easel.centred(x, crown_width))


def _bowtie(easel: _Easel, bow: tuple[float, float, float, float], parts: Values) -> Mask:
    def place(middle: Values, length: Values) -> tuple[Mask, Values]:
        """True for pixels inside the box along one axis, and their distance from its middle in [0, 1]; (b, size)."""
        pixels = np.maximum(np.ceil(length), 1)
        step = easel.pixel - easel.nearest(middle - length / 2)
        return (step >= 0) & (step < pixels) & (length > 0), np.abs((2 * step + 1) / pixels - 1)

    tip, slope, knot, wing = bow
    x, y, width, height = parts
    columns, u = place(x, width)
    rows, t = place(y, height)
    reach = np.clip(tip + slope * u, knot, wing)
    return _box(rows, columns) & (t[:, :, None] <= reach[:, None, :])


def _probabilities(p_attribute: float | Mapping[str, float]) -> list[float]:
    given = p_attribute if isinstance(p_attribute, Mapping) else dict.fromkeys(GROUPS, p_attribute)
    for name, p in given.items():
        if name not in GROUPS:
            raise ValueError(unknown("attribute", name, GROUPS))
        if not 0 <= p <= 1:
            raise ValueError(f"p_attribute must lie in [0, 1], got {p} for {name}")
    return [given.get(name, 0.5) for name in GROUPS]


def _geometry(changes: Mapping[str, tuple[float, float]] | None) -> dict[str, tuple[float, float]]:
    for name in changes or {}:
        if name not in GEOMETRY:
            raise ValueError(unknown("source", name, SOURCES))
    return {**GEOMETRY, **(changes or {})}
