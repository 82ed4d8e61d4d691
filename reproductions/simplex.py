r"""Sparsemax: scores become probabilities by Euclidean projection onto the simplex, and some of them exactly zero.

.. math:: \operatorname{sparsemax}(z) = \operatorname{argmin}_{p \in \Delta} \lVert p - z \rVert^2

The loss that belongs to it, for targets q on the simplex, is convex in z, has the gradient sparsemax(z) - q, and is
zero exactly where sparsemax(z) = q:

.. math::
    \tfrac12 \lVert q - z \rVert^2 - \tfrac12 \lVert p - z \rVert^2
    = \tfrac12 \lVert q \rVert^2 - \tfrac12 \lVert p \rVert^2 + (p - q) \cdot z, \qquad p = \operatorname{sparsemax}(z).

References
----------
A. F. T. Martins, R. F. Astudillo, "From softmax to sparsemax: a sparse model of attention and multi-label
classification", ICML 2016.
"""

from __future__ import annotations

import numpy as np

from sparsevae.metrics.arrays import Floats

__all__ = ["sparsemax", "sparsemax_loss"]

Loss = tuple[Floats, Floats]  # of each row, (n,), and its gradient in the scores, (n, L)


def sparsemax(scores: Floats) -> Floats:
    r"""Projection of every row onto the simplex, (..., L) -> (..., L).

    p_l = max(z_l - tau, 0) with tau such that the row sums to one: with z_(1) >= z_(2) >= ..., the support has k
    entries, the largest k with k z_(k) > z_(1) + ... + z_(k) - 1, and tau = (z_(1) + ... + z_(k) - 1) / k.

    >>> sparsemax(np.array([[1.0, 0.5, -3.0]]))
    array([[0.75, 0.25, 0.  ]])
    """
    z = scores - scores.max(-1, keepdims=True)  # the projection does not see a constant, but its rounding would
    down = -np.sort(-z, axis=-1)
    excess = np.cumsum(down, axis=-1) - 1
    k = (np.arange(1, z.shape[-1] + 1) * down > excess).sum(-1, keepdims=True)
    p: Floats = np.maximum(z - np.take_along_axis(excess, k - 1, axis=-1) / k, 0.0)
    return p


def sparsemax_loss(scores: Floats, targets: Floats) -> Loss:
    """Loss and gradient of every row, for scores z and targets q, (n, L) each; the rows of q lie on the simplex."""
    p, z = sparsemax(scores), scores - scores.max(-1, keepdims=True)
    return ((targets**2 - p**2) / 2 + (p - targets) * z).sum(-1), p - targets
