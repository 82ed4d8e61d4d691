"""Ids of padding and of the end of a sentence, and the positions of a sentence in a row."""

from __future__ import annotations

from typing import Any

PAD, EOS = 0, 1  # PAD follows the end of a row; EOS ends a sentence, and is the first input of a decoder


def spoken(tokens: Any) -> Any:
    """True at the positions up to and including the first EOS: array or tensor (..., T) -> (..., T) bool.

    >>> import numpy as np
    >>> spoken(np.array([[5, 7, 1, 0], [1, 0, 0, 0]])).astype(int)
    array([[1, 1, 1, 0],
           [1, 0, 0, 0]])
    """
    end = tokens == EOS
    return end.cumsum(-1) == end  # after the first EOS, count is above end


def ends(tokens: Any) -> Any:
    """Position of the first EOS, (..., T) -> (...); the last position if a row has none.

    >>> import numpy as np
    >>> ends(np.array([[5, 7, 1, 0], [1, 0, 0, 0]]))
    array([2, 0])
    """
    return spoken(tokens).sum(-1) - 1
