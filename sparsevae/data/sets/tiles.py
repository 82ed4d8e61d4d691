"""White tiles on black: images with known generating factors, the positions of the tiles."""

from __future__ import annotations

import numpy as np

from sparsevae.checks import OneOf
from sparsevae.data.dataset import Dataset, check_generated, generate
from sparsevae.parameters import check_value

ABOUT = (
    "Binary images with one to three white square tiles at random places, after the synthetic set of "
    "Asperti, 'Sparsity in Variational Autoencoders'; generated here, with the positions as ground truth."
)
ROUNDS = 1000  # attempts to place the tiles of one image apart


def make(
    n: int = 60_000,
    n_test: int = 10_000,
    *,
    size: int = 28,
    tile: int = 4,
    min_tiles: int = 1,
    max_tiles: int = 3,
    overlap: bool = False,
    seed: int = 0,
) -> Dataset:
    """Draw images of ``min_tiles`` to ``max_tiles`` white tiles; every count is equally likely.

    Given the count, every placement on whole pixels is equally likely: all of them with ``overlap=True``,
    those in which no two tiles share a pixel otherwise. (The paper does not specify the count, the distribution of
    the positions or overlap; these are our choices.)

    Parameters
    ----------
    n, n_test : int
        Training and test images, from independent streams.
    size, tile : int
        Sides of the image and of a tile in pixels.
    min_tiles, max_tiles : int
    overlap : bool
    seed : int
        The same seed gives the same bytes; the first rows do not depend on n.

    Returns
    -------
    Dataset with X of shape (n, size * size), uint8 0/1, and in ``truth``:

    - ``count``, (n,): the number of tiles,
    - ``positions``, (n, max_tiles, 2): row and column of each tile's top left pixel, from 0, in reading
      order; -1 where there is no tile.

    Examples
    --------
    >>> d = make(5, 0, seed=1)
    >>> d.X.shape, [int(c) for c in d.X.sum(1) // 16] == d.truth["count"].tolist()
    ((5, 784), True)
    """
    check_generated(n, n_test, seed, size**2, size=size)
    check_value("overlap", overlap, bool, [OneOf(0, 1)])
    if not 1 <= tile <= size:
        raise ValueError(f"tile must be between 1 and the image's size {size}, got {tile}")
    if not 0 <= min_tiles <= max_tiles or max_tiles < 1:
        raise ValueError(f"expected 0 <= min_tiles <= max_tiles, at least 1; got {min_tiles} and {max_tiles}")
    room = (size // tile) ** 2
    if not overlap and max_tiles > room:
        raise ValueError(
            f"only {room} tiles of {tile} x {tile} fit side by side into {size} x {size}, "
            f"got max_tiles={max_tiles}; allow overlap=True or take smaller tiles"
        )

    def split(stream: np.random.SeedSequence, n: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        seed_count, seed_places = stream.spawn(2)
        count = np.random.default_rng(seed_count).integers(min_tiles, max_tiles + 1, size=n)
        positions = _place(count, max_tiles, size - tile + 1, 0 if overlap else tile, seed_places)
        return draw(positions, size=size, tile=tile), {"count": count, "positions": positions}

    return generate("tiles", n, n_test, seed, split, split, image_shape=(size, size), about=ABOUT)


def draw(positions: np.ndarray, *, size: int = 28, tile: int = 4) -> np.ndarray:
    """Paint tiles: positions (n, k, 2), -1 where absent, to images (n, size * size), uint8 0/1."""
    canvas = np.zeros((len(positions), size, size), dtype=np.uint8)
    image, which = np.nonzero(positions[..., 0] >= 0)
    row, column = positions[image, which].T
    side = np.arange(tile)
    canvas[image[:, None, None], (row[:, None] + side)[:, :, None], (column[:, None] + side)[:, None, :]] = 1
    return canvas.reshape(len(positions), size * size)


def _place(count: np.ndarray, slots: int, places: int, apart: int, stream: np.random.SeedSequence) -> np.ndarray:
    """Uniform positions (n, slots, 2) below ``places``, redrawn for a row until no two tiles are nearer than ``apart``.

    Each round draws for all rows up to the last one without a placement, so that the positions of a row depend only on
    its index and the seed, never on n.
    """
    out = np.full((len(count), slots, 2), -1)
    todo = np.arange(len(count))
    for child in stream.spawn(ROUNDS):
        if not todo.size:
            return out
        drawn = np.random.default_rng(child).integers(0, places, size=(todo[-1] + 1, slots, 2))[todo]
        absent = np.arange(slots) >= count[todo, None]
        drawn[absent] = places  # sorts last
        order = np.lexsort((drawn[..., 1], drawn[..., 0]))
        drawn = np.take_along_axis(drawn, order[..., None], axis=1)
        good = ~_touching(drawn, absent, apart)
        drawn[absent] = -1
        out[todo[good]] = drawn[good]
        todo = todo[~good]
    if todo.size:
        raise ValueError(
            f"no placement without overlap in {ROUNDS} attempts for {todo.size} of {len(count)} images: "
            "too crowded; take fewer or smaller tiles, or overlap=True"
        )
    return out


def _touching(positions: np.ndarray, absent: np.ndarray, apart: int) -> np.ndarray:
    """True if two present tiles of a row are nearer than ``apart`` in both directions; (n,)."""
    first, second = np.triu_indices(positions.shape[1], k=1)
    near = (np.abs(positions[:, first] - positions[:, second]) < apart).all(-1)
    near &= ~(absent[:, first] | absent[:, second])
    return np.asarray(near.any(-1))
