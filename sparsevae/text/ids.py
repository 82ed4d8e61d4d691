"""Ids with a meaning of their own, and which positions of a row belong to its sentence."""

from __future__ import annotations

from typing import Any

PAD, EOS = 0, 1  # fills a row up after its end; ends a sentence, and is what a decoder reads before its first word


def spoken(tokens: Any) -> Any:
    """Positions of the sentence, up to and including the first EOS: array or tensor (..., T) -> (..., T) bool.

    >>> import numpy as np
    >>> spoken(np.array([[5, 7, 1, 0], [1, 0, 0, 0]])).astype(int)
    array([[1, 1, 1, 0],
           [1, 0, 0, 0]])
    """
    end = tokens == EOS
    return end.cumsum(-1) == end  # after the first EOS the count is ahead


def ends(tokens: Any) -> Any:
    """Position of the first EOS, (..., T) -> (...); the last position of a row that has none.

    >>> import numpy as np
    >>> ends(np.array([[5, 7, 1, 0], [1, 0, 0, 0]]))
    array([2, 0])
    """
    return spoken(tokens).sum(-1) - 1
