"""How near our splitting of texts comes to the words of HSVAE's authors, on their files of DBpedia.

    python -m reproductions.dbpedia_words

The shares that it prints stand in the notes of :class:`sparsevae.text.vocabulary.Vocabulary`.
"""

from __future__ import annotations

import json
import os
import re
from difflib import SequenceMatcher

from sparsevae.data.readers.tsv import read_tsv
from sparsevae.data.sets import dbpedia
from sparsevae.text.splitting import UNKNOWN


def agreement(path: str | os.PathLike[str] | None = None) -> dict[str, float]:
    """How near ``tokenizer="paper"`` comes to the words of the paper's own files.

    Returns
    -------
    dict of shares

    - ``unchanged``: tokens of the valid file that, split again, are themselves.
    - ``rejoined``: tokens of the valid file that are found again, in order, when the spaces that splitting put before
      closing and after opening signs and around hyphens and slashes are taken out and the text is split anew. Some of
      those spaces were the author's, so this is a lower limit.
    - ``unknown_paper``: tokens of the valid file that are ``_UNK``.
    - ``unknown_pool``: words of the pool's raw texts (sources "dhim" and "olora"), split by us, that are not among the
      paper's 20,000. Were the splitting another one, this share would be larger than the paper's.
    """
    folder = dbpedia.DBPEDIA.find(path)
    valid = [text.split() for text in dbpedia._part(folder, "valid")[0]]
    known = dbpedia.vocabulary(path, tokenizer="paper")
    kinds = sorted({token for tokens in valid for token in tokens})
    same = {kind for kind, words in zip(kinds, known.split(kinds), strict=True) if words == [kind]}
    total = sum(map(len, valid))
    again = known.split([_rejoin(tokens) for tokens in valid])
    _, sources, texts = read_tsv(folder / "train_pool.tsv.xz", 3)
    raw = [text for text, source in zip(texts, sources, strict=True) if source in ("dhim", "olora")]
    pool = known.encode(raw)
    return {
        "unchanged": sum(token in same for tokens in valid for token in tokens) / total,
        "rejoined": sum(_common(a, b) for a, b in zip(valid, again, strict=True)) / total,
        "unknown_paper": sum(token == UNKNOWN for tokens in valid for token in tokens) / total,
        "unknown_pool": float((pool.ids == known.unknown).sum() / (len(pool.ids) - len(raw))),
    }


def _rejoin(tokens: list[str]) -> str:
    text = " ".join(tokens)
    text = re.sub(r" ([).,:;!?\]%])", r"\1", text)
    text = re.sub(r"([(\[#$]) ", r"\1", text)
    return re.sub(r"(?<=[a-z0-9]) ([-/]) (?=[a-z0-9])", r"\1", text)


def _common(a: list[str], b: list[str]) -> int:
    """Tokens of a that b has in the same order."""
    if a == b:
        return len(a)
    return sum(block.size for block in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks())


if __name__ == "__main__":
    print(json.dumps(agreement(), indent=1))
