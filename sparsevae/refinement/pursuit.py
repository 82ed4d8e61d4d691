r"""Least squares on a dictionary, and orthogonal matching pursuit, for many rows at once.

A linear decoder's mean is W z + b: column j of W is the atom of unit j. For a row x and r = x - b a pursuit looks for
the z with few non-zeros that minimises |r - W z|^2. It adds one unit at a time: the one whose atom, scaled to length 1,
has the largest product with what is left of r, and then fits the coefficients of all chosen units anew.

.. math:: j_t = \arg\max_j \frac{|w_j^\top r_t|}{|w_j|}, \qquad r_{t+1} = r_t - q_t q_t^\top r_t, \qquad
   l_t q_t = \frac{w_{j_t}}{|w_{j_t}|} - \sum_{s < t} L_{ts} q_s

The q_t are orthonormal (Gram-Schmidt), so that only products are needed: of the atoms with each other, G (J, J), with
the row, and with each q_t, (B, k, J). The coefficients follow from the triangular L at the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparsevae.latent.codes import contributions
from sparsevae.networks.dense import rowwise

_NUMBERS = 2**23  # products that are kept at a time
_DEPENDENT = 1e-6  # the least squared distance of a unit atom from the span of those chosen before it


class Dictionary(NamedTuple):
    """Atoms of length 1, (J, D), their lengths, (J,), the products of atoms, (J, J), and the output of the code 0."""

    atoms: Tensor
    lengths: Tensor
    gram: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> Dictionary:
        """The dictionary of the map z -> weight z + bias, with weight (D, J) and bias (D,)."""
        lengths = torch.linalg.vector_norm(weight, dim=0)
        atoms = (weight / lengths.clamp_min(torch.finfo(weight.dtype).tiny)).T.contiguous()
        return cls(atoms, lengths, atoms @ atoms.T, bias)

    def products(self, x: Tensor) -> Tensor:
        """The products of the atoms with r = x - b, (B, J), for rows x, (B, D)."""
        return rowwise(x - self.bias, self.atoms)


class _Chosen:
    """The units chosen so far for each row, in order, with the factors of their atoms."""

    def __init__(self, found: Dictionary, products: Tensor, most: int) -> None:
        B, J = products.shape
        self.gram = found.gram
        self.left = products.clone()  # products of all atoms with what is left, (B, J)
        self.open = (found.lengths > 0).expand(B, J).clone()  # units that may be chosen
        self.units = products.new_zeros(B, most, dtype=torch.long)
        self.factors = torch.eye(most, device=products.device).expand(B, -1, -1).clone()  # L, (B, k, k)
        self.parts = products.new_zeros(B, most)  # q_t' r, (B, k)
        self.products = products.new_zeros(B, most, J)  # of each q_t with all atoms
        self.explained = products.new_zeros(B)  # |r|^2 minus the squared error
        self.rows = torch.arange(B, device=products.device)
        self.n = 0

    def add(self, units: Tensor, more: Tensor) -> None:
        """Add one unit, (B,), to the rows `more`, (B,), unless its atom lies in the span of the others."""
        t, rows = self.n, self.rows
        before = self.products[rows, :t, units]  # L_ts, (B, t)
        square = 1 - before.square().sum(-1)
        more = more & self.open[rows, units] & (square > _DEPENDENT)
        own = self.gram[units] - torch.bmm(before.unsqueeze(1), self.products[:, :t]).squeeze(1)
        length = torch.where(more, square, 1.0).sqrt()
        own = torch.where(more[:, None], own / length[:, None], 0.0)
        part = torch.where(more, self.left[rows, units] / length, 0.0)
        self.open[rows, units] = False
        self.explained += part.square()
        self.left -= part[:, None] * own
        self.units[:, t], self.parts[:, t], self.products[:, t] = units, part, own
        self.factors[:, t, :t] = torch.where(more[:, None], before, 0.0)
        self.factors[:, t, t] = length
        self.n += 1

    def best(self) -> Tensor:
        """The unit whose atom has the largest product with what is left, (B,)."""
        return torch.where(self.open, self.left.abs(), -1.0).argmax(-1)

    def code(self, lengths: Tensor) -> Tensor:
        """The code with the coefficients of least squares, (B, J)."""
        values = self.parts.clone()
        for t in reversed(range(self.n)):  # L' values = parts, one unit at a time: a row's rounding is its own
            values[:, t] /= self.factors[:, t, t]
            values[:, :t] -= self.factors[:, t, :t] * values[:, t, None]
        found = values.new_zeros(len(values), len(lengths)).scatter_add_(1, self.units, values)
        return torch.where(lengths > 0, found / lengths, 0.0)


class Pursued(NamedTuple):
    """Codes (B, J), and by how much each lowers the squared error of its row, (B,)."""

    code: Tensor
    explained: Tensor


def pursue(found: Dictionary, products: Tensor, counts: Tensor, first: Tensor | None = None) -> Pursued:
    """Codes with at most counts, (B,), non-zeros each, by orthogonal matching pursuit.

    `products`, (B, J), are those of the atoms with the rows.
    `first`, (B, J), are units to begin with, where it is above 0: the largest first, at most `counts` of them.
    """
    counts = counts.clamp_max(len(found.lengths))
    most = int(counts.max())
    chosen = _Chosen(found, products, most)
    if first is None:
        first = torch.zeros_like(chosen.left)
    given, order = (first > 0).sum(-1), torch.sort(first, dim=-1, descending=True, stable=True).indices
    for t in range(most):
        chosen.add(torch.where(t < given, order[:, t], chosen.best()), t < counts)
    return Pursued(chosen.code(found.lengths), chosen.explained)


def pursue_from(found: Dictionary, x: Tensor, q: Any, most: int | None, z: Tensor | None = None) -> Tensor:
    """Codes (B, J) of rows x, (B, D), with `most` non-zeros; None: as many as the code z of q, by default its mode.

    Of two pursuits each row takes the one with the smaller error: one begins with nothing, the other with half of the
    encoder's units, those that contribute most (at most `most` // 2 of them).
    """
    z = q.mode if z is None else z
    first = contributions(q, found.lengths.square(), z)
    own = (z != 0).sum(-1)
    counts = own if most is None else torch.full_like(own, min(most, len(found.lengths)))
    least = torch.sort(first, dim=-1, descending=True).values
    rank = (torch.minimum(own, counts) // 2).unsqueeze(-1)
    first = torch.where(first > least.gather(-1, rank), first, 0.0)
    size = max(1, _NUMBERS // (max(1, int(counts.max())) * len(found.lengths)))
    parts = zip(found.products(x).split(size), counts.split(size), first.split(size), strict=True)
    codes = []
    for products, count, begun in parts:
        plain, other = pursue(found, products, count), pursue(found, products, count, begun)
        codes.append(torch.where((other.explained > plain.explained).unsqueeze(-1), other.code, plain.code))
    return torch.cat(codes)
