"""Text in and out: what is read, how it is split, what a vocabulary keeps, and batches of few widths."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsevae.tables.columns import text_columns
from sparsevae.text.ids import EOS, PAD
from sparsevae.text.reading import read_texts
from sparsevae.text.splitting import UNKNOWN
from sparsevae.text.vocabulary import Vocabulary
from sparsevae.text.widths import choose_widths

TEXTS = ["the cat sat .", "", "the dog"]
FREE = Vocabulary((UNKNOWN,))


def split(text: str, tokenizer: str) -> list[str]:
    return Vocabulary((UNKNOWN,), tokenizer).split([text])[0]


# ------------------------------------------------------------------------------------------------------- reading


def test_lists_generators_arrays_series_and_columns_give_the_same_texts():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"n": [1, 2, 3], "text": TEXTS})
    array = np.array(TEXTS, dtype=object)
    same = [
        TEXTS,
        tuple(TEXTS),
        (t for t in TEXTS),
        array,
        array[:, None],
        np.array(TEXTS),
        [t.encode() for t in TEXTS],
    ]
    for X in [*same, table["text"], table]:
        got = read_texts(X)
        assert got == TEXTS
        assert {type(text) for text in got} == {str}
    assert read_texts(table.assign(other=["a", "b", "c"]), column="other") == ["a", "b", "c"]
    with pytest.raises(
        ValueError, match=r"2 columns of text, text, other \(of n, text, other\): name one with column="
    ):
        read_texts(table.assign(other=TEXTS))
    with pytest.raises(ValueError, match="no column of text"):
        read_texts(table[["n"]])
    with pytest.raises(ValueError, match="no column 'txt': it has n, text"):
        read_texts(table, column="txt")


def test_a_word_that_was_unknown_before_is_unknown_still():
    for text, words in (
        ("The _UNK sings.", "the _UNK sings ."),
        ("(_UNK),_UNK", "( _UNK ) , _UNK"),
        ("_UNKs", "_unks"),
        ("漢_UNK字 e_UNK", "漢 _UNK 字 e_unk"),
    ):
        assert " ".join(FREE.split([text])[0]) == words
    vocabulary = Vocabulary.fit(["the _UNK sings", "_UNK _UNK"])
    assert vocabulary.words == ("sings", "the", UNKNOWN)


def test_of_many_columns_a_message_names_the_first():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame([["a cow"] * 300], columns=[f"c{k}" for k in range(300)])
    first = f"{', '.join(table.columns[:10])} and 290 more"
    with pytest.raises(ValueError, match=rf"300 columns of text, {first} \(of {first}\): name one"):
        read_texts(table)
    with pytest.raises(ValueError, match=rf"no column 'said': it has {first}$"):
        read_texts(table, column="said")


def test_a_column_that_is_there_twice_is_refused_by_name(tmp_path):
    (tmp_path / "twice.csv").write_text("t,n,n\na,1,2\n")
    assert read_texts(tmp_path / "twice.csv") == read_texts(tmp_path / "twice.csv", column="t") == ["a"]
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame([["a", 1, 2]], columns=["t", "n", "n"])
    assert read_texts(table) == read_texts(table, column="t") == ["a"]
    with pytest.raises(ValueError, match="the table has several columns of the name 'n'"):
        read_texts(table, column="n")
    (tmp_path / "twice.csv").write_text("t,n,t\na,1,b\n")
    with pytest.raises(ValueError, match=r"twice\.csv has several columns of the name 't': rename all but one"):
        read_texts(tmp_path / "twice.csv", column="t")


def test_columns_of_text_are_those_whose_first_value_that_is_there_is_a_text():
    pd = pytest.importorskip("pandas")
    columns = {
        "number": [1.0, 2.0],
        "text": ["a", "b"],
        "later": pd.Series([pd.NA, "a"], dtype="string"),
        "nothing": [None, float("nan")],
        "array": [np.zeros(2), np.zeros(2)],
    }
    table = pd.DataFrame(columns)
    assert text_columns(table) == ["text", "later"]
    assert text_columns(table.set_axis(["a"] * 5, axis=1)) == ["a", "a"]
    assert text_columns(["a"]) == []
    assert text_columns(np.array([["a"]])) == [0]
    assert read_texts(table.drop(columns="later")) == ["a", "b"]


@pytest.mark.parametrize("kind", [str, Path])
def test_a_text_file_has_one_text_a_line(tmp_path, kind):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\n\nthree\u2028still three\n".encode())
    assert read_texts(kind(path)) == ["one", "", "three\u2028still three"]
    path.write_text("no line feed at the end")
    assert read_texts(kind(path)) == ["no line feed at the end"]
    path.write_bytes(b"")
    assert read_texts(kind(path)) == []


def test_tables_are_read_by_the_column_named_or_the_only_one_of_text(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = ['a "quoted", text', "of two\nlines", "", "NA", "x" * 2_000_000]
    csv = tmp_path / "a.csv"
    quoted = ["".join(('"', t.replace('"', '""'), '"')) for t in texts]
    csv.write_text("stars,text\n" + "".join(f"{i},{t}\n" for i, t in enumerate(quoted)))
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"stars": range(5), "text": texts}), parquet)
    for path in (csv, parquet):
        assert read_texts(path) == texts
        assert read_texts(path, column="text") == texts
        with pytest.raises(ValueError, match="has no column 'texts': it has stars, text"):
            read_texts(path, column="texts")
    assert read_texts(csv, column="stars") == ["0", "1", "2", "3", "4"]  # text, because it was asked for as text
    pq.write_table(pa.table({"text": ["a", None]}), parquet)
    with pytest.raises(ValueError, match=r"a\.parquet: text 1 is missing \(None\): drop that row"):
        read_texts(parquet)
    parquet.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"not a \.parquet file"):
        read_texts(parquet)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("a bare sentence", TypeError, r"got one str \('a bare sentence'\): pass a list, \[text\]"),
        (b"bytes", TypeError, "got one bytes"),
        (3, TypeError, "expected a list of texts, got an int"),
        ({"a": "b"}, TypeError, "got a dict"),
        ({"a", "b"}, TypeError, "got a set"),
        (["a", 3], TypeError, r"text 1 is an int \(3\), not a str"),
        (np.zeros(2), TypeError, r"text 0 is a float64 \(0.0\)"),
        (np.zeros((2, 3)), TypeError, r"got a ndarray of shape \(2, 3\)"),
        (["a", None], TypeError, "text 1 is missing"),
        (["a", float("nan")], TypeError, r"text 1 is missing \(nan\): drop that row, or put '' there"),
        ([["a", "b"]], TypeError, "text 0 is a list, not a str: join its words"),
        ([np.array(["a", "b"])], TypeError, "text 0 is a ndarray, not a str: join its words"),
        ([b"ok", b"\xff"], ValueError, "byte 0 of text 1 is not UTF-8: decode it yourself"),
        ("missing.txt", FileNotFoundError, "no such file"),
        (Path("a.docx"), ValueError, r"expected a file that ends in \.txt, \.csv or \.parquet"),
    ],
)
def test_what_is_no_list_of_texts_is_refused_with_a_way_out(X, error, message):
    with pytest.raises(error, match=message):
        read_texts(X)


def test_a_column_is_asked_only_of_what_has_columns(tmp_path):
    with pytest.raises(ValueError, match="names a column of a table or a file; X is a list"):
        read_texts(["a"], column="text")
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ValueError, match="has no columns"):
        read_texts(tmp_path / "a.txt", column="text")


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good\nb\xe9se\n")
    with pytest.raises(ValueError, match=r"a\.txt, line 2: not UTF-8"):
        read_texts(tmp_path / "a.txt")


# ----------------------------------------------------------------------------------------------------- splitting


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World! It's 3.5", ["hello", ",", "world", "!", "it's", "3", ".", "5"]),
        ("cafe\u0301 CAFÉ", ["café", "café"]),
        ("שלום, עולם", ["שלום", ",", "עולם"]),
        ("مرحبا بالعالم؟", ["مرحبا", "بالعالم", "؟"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("日本語です", ["日", "本", "語", "で", "す"]),
        ("ดี123", ["ดี", "123"]),
        ("ok👩‍👩‍👧👍🏽!", ["ok", "👩‍👩‍👧", "👍🏽", "!"]),
        (" \t\n\u00a0", []),
        ("a\x00b\ud800", ["a", "\x00", "b", "\ufffd"]),
    ],
)
def test_words_of_any_alphabet_are_found(text, words):
    assert split(text, "words") == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The J.-P. Co. of St. Louis (U.S.A.)", "the j.-p. co. of st. louis ( u.s.a. )"),
        ("A well-known 74-gun ship, 1990-95.", "a well - known 74-gun ship , 1990 - 95 ."),
        ("It ended in 2010.The film.Also", "it ended in 2010.the film . also"),
        ("The film's \"name\" isn't new", "the films name isnt new"),
        ("São Tomé – Øresund, 株式会社", "sao tome - oresund ,"),
        ("see http://a.b/c?d or www.e.f now", "see or now"),
        ("US$5 and/or 12km/h #1 100%", "us$ 5 and/or 12 km/h # 1 100 %"),
        ("_UNK ( _UNK ) _UNK-based", "_UNK ( _UNK ) _UNK - based"),
        ("...wait...", "... wait ..."),
    ],
)
def test_the_papers_preparation_is_followed(text, words):
    assert " ".join(split(text, "paper")) == words


def test_space_changes_nothing():
    assert split("The  cat-flap\tsat .", "space") == ["The", "cat-flap", "sat", "."]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=4), st.sampled_from(["words", "space"]))
def test_words_put_together_with_spaces_are_split_into_the_same_words(texts, tokenizer):
    once = Vocabulary((UNKNOWN,), tokenizer).split(texts)
    assert Vocabulary((UNKNOWN,), tokenizer).split([" ".join(words) for words in once]) == once


@pytest.mark.parametrize("n", [5_000, pytest.param(100_001, marks=pytest.mark.slow)])
@pytest.mark.parametrize("tokenizer", ["words", "space", "paper"])
def test_random_byte_strings_are_encoded_and_decoded(tokenizer, n):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, 10 * n, dtype=np.uint8).tobytes()
    cuts = np.sort(rng.integers(0, len(data), n))
    ways = itertools.cycle([("latin-1", "strict"), ("utf-8", "replace"), ("utf-8", "surrogateescape")])
    texts = [data[a:b].decode(*next(ways)) for a, b in itertools.pairwise(cuts.tolist())]
    vocabulary = Vocabulary.fit(texts, tokenizer=tokenizer, size=300)
    rows = vocabulary.encode(texts, max_length=20)
    assert len(rows.lengths) == len(texts)
    assert ((rows.ids > PAD) & (rows.ids < len(vocabulary))).all()
    assert (rows.ids[rows.offsets[1:] - 1] == EOS).all()
    assert (rows.ids == EOS).sum() == len(texts)
    again = Vocabulary(vocabulary.words, "space").encode(vocabulary.decode(rows))
    np.testing.assert_array_equal(again.ids, rows.ids)


@pytest.mark.parametrize("size", [100_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("tokenizer", ["words", "space", "paper"])
@pytest.mark.parametrize("unit", ["a", "(", "word soup, ", "漢", "\u0301", "👍", "-.'"])
def test_a_very_long_line_is_a_sentence(tokenizer, unit, size):
    line = unit * (size // len(unit.encode()))
    vocabulary = Vocabulary.fit([line, "b"], tokenizer=tokenizer)
    assert max(map(len, vocabulary.words)) <= 1000
    rows = vocabulary.encode([line], max_length=20)
    nothing = tokenizer == "paper" and not unit.isascii()
    assert (rows.lengths[0], rows.cut[0]) == ((1, False) if nothing else (21, True))


def test_a_line_of_ten_megabytes_takes_the_time_of_its_beginning():
    line = "word soup, " * 900_000
    rows = Vocabulary(("soup", "word", ",", UNKNOWN)).encode([line] * 5, max_length=6)
    np.testing.assert_array_equal(rows.padded(), [[3, 2, 4, 3, 2, 4, 1]] * 5)


# ---------------------------------------------------------------------------------------------------- vocabulary


def test_the_most_frequent_words_are_kept_and_the_unknown_word_is_one_of_them():
    vocabulary = Vocabulary.fit(["b b a a c", "d"], size=4)
    assert vocabulary.words == ("a", "b", "c", UNKNOWN)  # alphabetically where counts are equal
    assert (len(vocabulary), vocabulary.unknown) == (6, 5)
    assert Vocabulary.fit(["d", "c a a b b"], size=4) == vocabulary  # whatever the order
    assert Vocabulary.fit(["b b a a c", "d"], min_count=2).words == ("a", "b", UNKNOWN)
    assert Vocabulary.fit([f"a {UNKNOWN} {UNKNOWN}"], tokenizer="space").words == ("a", UNKNOWN)


def test_texts_become_ids_with_an_end_and_padding_after_it():
    vocabulary = Vocabulary.fit(TEXTS, size=6)
    assert vocabulary.words == ("the", ".", "cat", "dog", "sat", UNKNOWN)
    rows = vocabulary.encode(["the cat flew .", "", "Sat"])
    np.testing.assert_array_equal(rows.padded(), [[2, 4, 7, 3, 1], [1, 0, 0, 0, 0], [6, 1, 0, 0, 0]])
    np.testing.assert_array_equal(rows.lengths, [5, 1, 2])
    np.testing.assert_array_equal(rows.take([2, 2], 3), [[6, 1, 0], [6, 1, 0]])
    assert rows.padded(9).shape == (3, 9)
    assert (rows.padded(9)[:, 5:] == PAD).all()
    for form in (rows, rows.padded(), list(rows.padded(9))):
        assert vocabulary.decode(form) == ["the cat _UNK .", "", "sat"]
    with pytest.raises(ValueError, match="a row of 5 ids does not fit into a width of 4"):
        rows.padded(4)


def test_a_text_over_the_limit_is_cut_marked_and_still_ends():
    rows = Vocabulary.fit(TEXTS).encode(TEXTS, max_length=2)
    np.testing.assert_array_equal(rows.cut, [True, False, False])
    np.testing.assert_array_equal(rows.lengths, [3, 1, 3])
    assert (rows.padded()[[0, 2], 2] == EOS).all()
    with pytest.raises(ValueError, match="max_length must be an integer above 0 or None"):
        FREE.encode(TEXTS, max_length=0)


def test_no_texts_are_no_rows():
    rows = FREE.encode([])
    assert (rows.padded().shape, FREE.decode(rows), FREE.decode(np.zeros((2, 0), int))) == ((0, 1), [], ["", ""])


def test_padding_that_would_fill_the_memory_is_refused():
    rows = FREE.encode(["a " * 70_000, *[""] * 4000])
    with pytest.raises(ValueError, match=r"4,001 rows of 70,001 ids are too many at once: encode with max_length="):
        rows.padded()


@pytest.mark.parametrize("tokenizer", ["words", "space", "paper"])
@pytest.mark.parametrize("texts", [[], [""], [" \n", "\t"], (t for t in [])])
def test_a_corpus_without_words_is_refused(texts, tokenizer):
    with pytest.raises(ValueError, match=r"no word in \d texts"):
        Vocabulary.fit(texts, tokenizer=tokenizer)


def test_a_vocabulary_survives_json():
    vocabulary = Vocabulary.fit(['naïve 日本 \u2028 👍 a"b\\c'], tokenizer="words")
    stored = json.dumps(vocabulary.to_dict())
    assert Vocabulary.from_dict(json.loads(stored)) == vocabulary
    with pytest.raises(ValueError, match="expected 'tokenizer' and 'words', got"):
        Vocabulary.from_dict({"words": ["a"]})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Vocabulary(("a", "a", UNKNOWN)), "'a' is in the vocabulary twice"),
        (lambda: Vocabulary(("a",)), "must contain '_UNK'"),
        (lambda: Vocabulary(("a b", UNKNOWN)), "words without white space, got 'a b'"),
        (lambda: Vocabulary(("", UNKNOWN)), "words without white space, got ''"),
        (lambda: Vocabulary((UNKNOWN,), "spacy"), r"'spacy': did you mean 'space'\? There are: paper, space, words"),
        (lambda: Vocabulary.fit(["a"], tokenizer="spacy"), "unknown tokenizer"),
        (lambda: Vocabulary.fit(["a"], size=1), "size must be an integer, 2 or above, or None, got 1"),
        (lambda: Vocabulary.fit(["a a"], min_count=3), "no word occurs 3 times; the most frequent occurs 2 times"),
        (lambda: FREE.decode(np.array([2, 1])), r"for one row pass \[row\]"),
        (lambda: FREE.decode([[2.5]]), "expected rows of ids"),
        (lambda: FREE.decode([[3]]), "ids go from 0 to 2, got 3 to 3"),
        (lambda: FREE.decode([[-1]]), "ids go from 0 to 2"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_importing_the_module_loads_nothing_heavy():
    heavy = ("torch", "sklearn", "tokenizers", "pandas", "pyarrow")
    code = f"import sys, sparsevae.text; print(*(set({heavy}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


# -------------------------------------------------------------------------------------------------------- widths


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 4))
def test_no_other_widths_pad_less(lengths, n_widths):
    def cost(widths):
        return sum(next(w for w in widths if w >= length) for length in lengths)

    top = -(-max(lengths) // 4) * 4
    others = [range(4, top + 1, 4)] * (n_widths - 1)
    best = min(cost(sorted({*choice, top})) for choice in itertools.product(*others))
    chosen = choose_widths(lengths, n_widths, multiple=4)
    assert len(chosen) <= n_widths
    assert chosen[-1] == top
    assert cost(chosen) == best


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: choose_widths([]), "each at least 1"),
        (lambda: choose_widths([0]), "each at least 1"),
        (lambda: choose_widths([1], 0), "n_widths must be an integer above 0, got 0"),
    ],
)
def test_widths_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
