"""Binarisation of grey images."""

from typing import Literal

import numpy as np

BLOCK = 4096  # rows drawn at a time, so that the noise takes little memory


def binarise(
    X: np.ndarray,
    *,
    method: Literal["static"] = "static",
    threshold: float | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Convert grey intensities to black and white in the units of X: 0 and 255 for 8-bit images, 0 and 1 otherwise.

    Each pixel is drawn once, x ~ Bernoulli(intensity); or, with a threshold, x is white if the intensity is
    above it. A Bernoulli score is a log-likelihood, and its bound a bound, only on data that are zeros and
    ones; on grey pixels it is a cross-entropy. So a published number should name its binarisation. Drawing the
    training pixels again at every step (dynamic binarisation) is part of the training loop:
    ``Training(binarise=True)``.

    Parameters
    ----------
    X : array of any shape
        uint8 is divided by 255, unless all values are 0 and 1: such an array is binary and is returned as it is.
        Floating point must lie in [0, 1].
    method : "static"
    threshold : float or None
        None draws each pixel; a number in [0, 1) is compared with the intensity.
    seed : int
        The same seed gives the same bytes; the first rows do not depend on how many rows follow.

    Returns
    -------
    uint8 array of the shape of X: 0 and 255 if X is an 8-bit image, else 0 and 1. So a model fitted on grey 8-bit
    images can be evaluated on binary ones, which have the same units.

    Examples
    --------
    >>> import numpy as np
    >>> grey = np.array([[0.0, 0.4, 0.6, 1.0]])
    >>> binarise(grey, threshold=0.5)
    array([[0, 0, 1, 1]], dtype=uint8)
    >>> many = binarise(np.full((10_000, 1), 51, dtype=np.uint8))  # 51 / 255 = 0.2
    >>> np.unique(many).tolist(), bool(abs((many > 0).mean() - 0.2) < 0.02)
    ([0, 255], True)
    """
    if method != "static":
        raise ValueError(
            f"method must be 'static', got {method!r}: dynamic binarisation draws again at every training step; "
            "use Training(binarise=True)"
        )
    if threshold is not None and not 0 <= threshold < 1:
        raise ValueError(f"threshold must be None or lie in [0, 1), got {threshold}")
    X = np.asarray(X)
    white = _white(X)
    rng = np.random.default_rng(seed)
    out = np.empty(X.shape, dtype=np.uint8)
    # views with at least one dimension, for a scalar X
    rows, drawn = np.atleast_1d(X), np.atleast_1d(out)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        cut = rng.random(block.shape, dtype=np.float32) if threshold is None else threshold
        # u in [0, 1) < intensity: never at 0, always at 1
        drawn[start : start + BLOCK] = white * (block > cut * np.float32(white))
    return out


def _white(X: np.ndarray) -> int:
    """The value of intensity 1."""
    numeric = X.dtype.kind in "biuf"
    low, high = (X.min(), X.max()) if numeric and X.size else (0, 0)
    if numeric and low >= 0 and high <= 1:  # False for NaN
        return 1
    if X.dtype == np.uint8:
        return 255
    span = f" from {low} to {high}" if numeric else ""
    raise ValueError(
        "expected intensities: uint8 from 0 to 255, or floating point from 0 to 1; "
        f"got {X.dtype}{span}; divide by the value that means white"
    )
