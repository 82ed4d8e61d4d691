"""Words of classes and of units: by hand, on planted texts, and where nothing is there to say."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

import sparsevae as sv
from sparsevae.data.sets.dbpedia import paper_form
from sparsevae.metrics import (
    at_equal,
    class_gates,
    class_word_divergence,
    class_words,
    coherence,
    diversity,
    top_rows,
    top_words,
    word_counts,
)
from sparsevae.text.vocabulary import Vocabulary

REAL = Path(os.environ.get("SPARSEVAE_DATA", "nowhere"))


def planted(seed=0, n=2000, rare=600, frequent=20, units=3, own=4):
    """Codes, words of each row and each unit's own words: those stand in 40 % of the unit's rows and 2 % of others.

    Besides there are words that stand in half of all rows, and words that stand in a single one.
    """
    rng = np.random.default_rng(seed)
    on = rng.random((n, units)) < 0.1
    Z = on * rng.normal(0, 1, (n, units))
    own_words = rng.random((n, units, own)) < np.where(on, 0.4, 0.02)[:, :, None]
    once = np.zeros((n, rare), bool)
    once[rng.integers(0, n, rare), np.arange(rare)] = True
    kept_rows = np.hstack([once, own_words.reshape(n, -1), rng.random((n, frequent)) < 0.5])
    return Z, csr_array(kept_rows.astype(np.int64)), rare + np.arange(units * own).reshape(units, own)


def test_counts_are_those_of_the_vocabulary_in_its_own_order():
    texts = ["the cat saw the dog", "", "dog dog dog"]
    vocabulary = Vocabulary.fit(texts, size=4)  # dog, the, cat, and saw is unknown
    counts = word_counts(vocabulary.encode(texts).padded(), len(vocabulary))
    assert vocabulary.words == ("dog", "the", "cat", "_UNK")
    assert counts.toarray().tolist() == [[1, 2, 1, 1], [0, 0, 0, 0], [3, 0, 0, 0]]
    assert counts.format == "csr"
    assert counts.dtype == np.int64


def test_what_follows_the_end_of_a_sentence_is_not_counted():
    assert word_counts([[2, 1, 3, 3], [0, 3, 0, 2]], 4).toarray().tolist() == [[1, 0], [1, 1]]


def test_no_rows_make_no_counts_but_keep_the_words():
    assert word_counts(np.zeros((0, 7), int), 12).shape == (0, 10)


def test_class_words_are_smoothed_shares_of_all_words_of_a_class():
    counts, y = [[3, 1, 0], [0, 0, 1], [2, 0, 0]], [1, 0, 1]
    np.testing.assert_allclose(class_words(counts, y), [[1 / 4, 1 / 4, 2 / 4], [6 / 9, 2 / 9, 1 / 9]])
    np.testing.assert_allclose(class_words(counts, y, smoothing=0.5)[1], np.array([5.5, 1.5, 0.5]) / 7.5)


def test_a_class_without_words_is_uniform():
    np.testing.assert_allclose(class_words([[0, 0, 0, 0], [0, 3, 0, 0]], [0, 1])[0], [0.25] * 4)


def test_the_divergence_of_classes_by_hand_is_not_symmetric():
    got = class_word_divergence([[6, 0], [0, 2]], ["a", "b"])  # (7/8, 1/8) and (1/4, 3/4)
    ab = 7 / 8 * math.log(7 / 2) + 1 / 8 * math.log(1 / 6)
    ba = 1 / 4 * math.log(2 / 7) + 3 / 4 * math.log(6)
    np.testing.assert_allclose(got, [[0, ab], [ba, 0]], atol=1e-15)


def test_classes_of_the_same_words_do_not_differ():
    np.testing.assert_array_equal(class_word_divergence([[1, 2], [2, 4], [3, 6]], [0, 0, 1], 1e-300), np.zeros((2, 2)))


def test_class_gates_are_means_over_the_rows_of_a_class():
    off = np.array([[0.2, 1.0], [0.4, 0.0], [0.9, 0.5]])
    np.testing.assert_allclose(class_gates(off, ["b", "b", "a"]), [[0.9, 0.5], [0.3, 0.5]])
    np.testing.assert_allclose(class_gates(1 - off, ["b", "b", "a"]), 1 - class_gates(off, ["b", "b", "a"]))


@pytest.mark.parametrize("seed", range(3))
def test_planted_words_are_found_before_rare_and_frequent_ones(seed):
    Z, counts, own = planted(seed)
    np.testing.assert_array_equal(np.sort(top_words(Z, counts, n=own.shape[1])), own)


def test_the_mean_size_of_a_unit_over_the_rows_of_a_word_would_choose_rare_words():
    Z, counts, own = planted()
    mean = (np.abs(Z).T @ counts) / np.maximum(counts.sum(0), 1)
    assert (np.argsort(-mean)[:, : own.shape[1]] < own.min()).all()  # words of a single row, each of them


def test_chance_lifts_neither_rare_nor_frequent_words_as_simpler_scores_do():
    # Units that have nothing to do with words of 1, 10 and 100 rows: each kind leads in a third of the units.
    rng, rows = np.random.default_rng(0), np.arange(4000)
    kinds = np.repeat([1, 10, 100], 20)
    counts = np.stack([np.isin(rows, rng.choice(rows, k, replace=False)) for k in kinds], axis=1)
    Z = rng.normal(size=(4000, 300))
    lead = kinds[top_words(Z, counts, n=1)[:, 0]]
    assert all((lead == k).mean() == pytest.approx(1 / 3, abs=0.08) for k in (1, 10, 100))  # three standard errors
    weight = np.abs(Z).T @ counts
    p, q = weight / weight.sum(1, keepdims=True), kinds / kinds.sum()
    assert (kinds[(weight / kinds).argmax(1)] == 1).mean() > 0.9  # the mean size in a word's rows: rare words
    assert (kinds[(p * np.log(p / q)).argmax(1)] == 100).mean() > 0.9  # without - p + q: frequent words


def test_the_order_of_words_is_that_of_their_parts_of_the_divergence():
    rng = np.random.default_rng(3)
    Z, counts = rng.normal(size=(30, 2)), rng.poisson(0.4, (30, 9))
    for unit, words in enumerate(top_words(Z, counts, n=9)):
        p = np.array([sum(abs(Z[i, unit]) for i in range(30) if counts[i, w]) for w in range(9)])
        q = np.array([sum(1 for i in range(30) if counts[i, w]) for w in range(9)])
        p, q = p / p.sum(), q / q.sum()
        score = p * np.log(p / q) - p + q
        assert score.sum() == pytest.approx((p * np.log(p / q)).sum(), abs=1e-12)
        by_hand = [w for w in np.argsort(-score) if p[w] > q[w]]
        assert words.tolist() == by_hand + [-1] * (9 - len(by_hand))


def test_a_word_that_one_loud_row_repeats_is_one_piece_of_evidence():
    Z, counts, own = planted()
    loudest = top_rows(Z, 1)[0, 0]
    counts = counts.toarray()
    counts[:, 0] = 0
    counts[loudest, 0] = 500
    assert top_words(Z, counts, n=own.shape[1])[0].tolist() == top_words(Z, counts > 0, n=own.shape[1])[0].tolist()
    assert 0 not in top_words(Z, counts, n=own.shape[1])


@pytest.mark.parametrize("scale", [-1.0, 1e-3, 1e307])
def test_neither_scale_nor_sign_of_a_unit_changes_its_words_and_rows(scale):
    Z, counts, _ = planted(n=300)
    np.testing.assert_array_equal(top_words(Z * scale, counts), top_words(Z, counts))
    np.testing.assert_array_equal(top_rows(Z * scale), top_rows(Z))


def test_the_two_poles_of_a_unit_have_words_of_their_own():
    Z = np.array([[1.0], [1.0], [-2.0], [-2.0], [0.0]])
    counts = [[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1], [0, 0, 1]]
    assert top_words(np.maximum(Z, 0), counts, n=1).tolist() == [[0]]
    assert top_words(np.maximum(-Z, 0), counts, n=1).tolist() == [[1]]


def test_units_that_are_off_or_of_one_size_have_no_words():
    rng = np.random.default_rng(0)
    Z = np.stack([np.zeros(50), np.full(50, 0.1), 0.1 * rng.choice([-1, 1], 50)], axis=1)
    assert (top_words(Z, rng.poisson(0.5, (50, 8))) == -1).all()


def test_texts_without_any_word_give_no_words():
    assert (top_words(np.eye(3), np.zeros((3, 4))) == -1).all()


def test_top_rows_end_where_a_unit_is_off():
    Z = [[0.0, -1.0, 0.0], [5.0, 2.0, 0.0], [-6.0, 1.0, 0.0]]
    assert top_rows(Z, n=4).tolist() == [[2, 1, -1, -1], [1, 0, 2, -1], [-1, -1, -1, -1]]


def test_coherence_by_hand():
    # P(0) = 4/8, P(1) = 2/8, P(2) = 3/8; together 0 and 1: 2/8, 0 and 2: 1/8, 1 and 2: never.
    kept_rows = np.array([[1, 1, 0], [7, 1, 0], [1, 0, 2], [1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    second = math.log((1 / 8) / (3 / 16)) / -math.log(1 / 8)
    np.testing.assert_allclose(coherence([[0, 1], [0, 2], [2, 1]], kept_rows), [0.5, second, -1.0])
    np.testing.assert_allclose(coherence([[2, 0, 1]], kept_rows), [(0.5 + second - 1) / 3])


def test_coherence_is_zero_by_chance_and_one_when_words_only_come_together():
    kept_rows = [[1, 1, 0, 1, 1], [1, 0, 0, 1, 1], [0, 1, 0, 1, 1], [0, 0, 0, 1, 1]]
    np.testing.assert_allclose(coherence([[0, 1], [3, 4], [0, 3]], kept_rows), [0, 0, 0], atol=1e-12)
    assert coherence([[0, 1]], [[1, 1], [1, 1], [0, 0]]) == pytest.approx([1.0])


def test_words_that_no_row_holds_and_places_without_word_say_nothing():
    kept_rows = [[1, 1, 0], [2, 1, 0], [0, 0, 0]]
    np.testing.assert_allclose(coherence([[0, 1, 2], [0, -1, 1]], kept_rows), [1, 1])
    assert np.isnan(coherence([[0, 2, -1], [-1, -1, -1], [1, 1, 1]], kept_rows)).all()


def test_the_words_of_a_unit_that_follows_nothing_do_not_cohere():
    Z, counts, own = planted()
    noise = np.random.default_rng(1).normal(size=Z.shape)
    assert coherence(top_words(Z, counts, own.shape[1]), counts).min() > 0.3
    assert coherence(top_words(noise, counts, own.shape[1]), counts).max() < 0


def test_diversity_counts_every_word_once():
    assert diversity([[0, 1], [2, 3]]) == 1
    assert diversity([[5, 5], [5, 5]]) == 0.25
    assert diversity([[0, 1, -1], [1, -1, -1]]) == pytest.approx(2 / 3)
    assert math.isnan(diversity([[-1, -1]]))


def test_at_equal_meets_the_runs_and_goes_straight_between_them():
    R, accuracy = [104.0, 110.0, 107.0, 107.0], [0.8, 0.2, 0.5, 0.7]
    np.testing.assert_allclose(at_equal(R, accuracy, [104, 105.5, 107, 108.5, 110]), [0.8, 0.7, 0.6, 0.4, 0.2])
    assert at_equal([3.0], [0.5], 3.0) == 0.5
    assert np.isnan(at_equal(R, accuracy, [103.9, 110.1])).all()


@pytest.mark.parametrize("sparse", [csr_array, csr_matrix])
def test_sparse_and_dense_arrays_give_the_same_and_stay_as_they_were(sparse):
    Z, counts, _ = planted(n=200, rare=20)
    dense, y = counts.toarray(), np.arange(200) % 3
    untidy = sparse((np.ones(3), [2, 0, 2], np.r_[0, 3, np.full(199, 3)]), shape=(200, dense.shape[1]))
    np.testing.assert_array_equal(top_words(sparse(Z), sparse(dense)), top_words(Z, dense))
    np.testing.assert_array_equal(top_rows(sparse(Z)), top_rows(Z))
    np.testing.assert_array_equal(class_words(sparse(dense), y), class_words(dense, y))
    np.testing.assert_array_equal(coherence([[20, 21, 30]], sparse(dense)), coherence([[20, 21, 30]], dense))
    np.testing.assert_array_equal(class_words(untidy, y), class_words(untidy.toarray(), y))
    np.testing.assert_array_equal(coherence([[0, 2]], untidy), coherence([[0, 2]], untidy.toarray()))
    assert untidy.indices.tolist() == [2, 0, 2]


@pytest.mark.slow
@pytest.mark.skipif(
    not all((REAL / name).is_dir() for name in ("dbpedia", "yelp")), reason="needs $SPARSEVAE_DATA/{dbpedia,yelp}"
)
def test_the_classes_of_dbpedia_differ_in_their_words_and_those_of_yelp_hardly_do(tmp_path):
    # Figure 4(b). Both have some 33,000 words a class, so that smoothing weighs alike.
    found = []
    (tmp_path / "train.txt").write_text("no training text counts")
    for name, options in (("dbpedia", {"train": tmp_path / "train.txt"}), ("yelp", {})):
        data = sv.data.load(name, **options)
        texts = paper_form(data.X_test.tolist())  # split once: what is between spaces are its words
        vocabulary = Vocabulary.fit(texts, tokenizer="space")
        counts = word_counts(vocabulary.encode(texts, max_length=200).padded(), len(vocabulary))
        table = class_word_divergence(counts, data.y_test)
        found.append(table[~np.eye(len(table), dtype=bool)])
    assert found[0].min() > found[1].max()
    assert found[0].mean() > 4 * found[1].mean()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: word_counts([[2.0, 1.0]], 4), r"tokens must be whole numbers of shape \(rows, width\); got float64"),
        (lambda: word_counts([2, 1], 4), r"got int64 of shape \(2,\)"),
        (lambda: word_counts([[4, 1]], 4), r"from 0 to vocabulary - 1.*got tokens from 0 to 4, vocabulary=4"),
        (lambda: word_counts([[-1, 1]], 4), r"got tokens from -1"),
        (lambda: word_counts([[1, 0]], 2), "a vocabulary has at least one word"),
        (lambda: class_words([[1, 0]], [0, 1]), r"each of the 1 rows; got shape \(2,\)"),
        (lambda: class_words([[1, -1]], [0]), "none below 0"),
        (lambda: class_words([[1, np.nan]], [0]), "finite"),
        (lambda: class_words(np.zeros((0, 3)), []), "at least one of each"),
        (lambda: class_words([["a"]], [0]), "counts must be finite numbers"),
        (lambda: class_words([[1, 0]], [0], smoothing=0), "smoothing must be a number above 0, got 0"),
        (lambda: class_gates([[0.5, 3.0]], [0]), r"gates must be probabilities.*got 0.5 to 3.0"),
        (lambda: top_words(np.eye(2), np.ones((3, 4))), "Z has 2, counts has 3"),
        (lambda: top_rows(np.eye(2), n=0), "n must be an integer above 0, got 0"),
        (lambda: coherence([[0, 3]], [[1, 1, 1]]), "from 0 to 2, or -1 for none"),
        (lambda: coherence([0, 1], [[1, 1, 1]]), r"words must be whole numbers of shape \(units, n\)"),
        (lambda: at_equal([1.0, 2.0], [0.5], 1.0), r"one number per run, \(k,\); got shapes \(2,\), \(1,\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
