"""The catalogue: names, descriptions without loading, and errors that list what exists."""

import subprocess
import sys

import numpy as np
import pooch
import pytest

from sparsevae.data import Dataset, info, load, names

HEAVY = ("pandas", "pyarrow", "matplotlib", "pooch", "sklearn.datasets", "scipy.io", "PIL")


FRESH = f"""
import sys, sparsevae.data
print(*(set({HEAVY}) & set(sys.modules)))
import random, numpy
state = random.getstate(), repr(numpy.random.get_state())
sparsevae.data.load("digits")
print((random.getstate(), repr(numpy.random.get_state())) == state)
"""


@pytest.fixture(scope="module")
def fresh():
    """What a process says that has imported nothing yet."""
    run = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    return run.stdout.split("\n")


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy(fresh):
    assert fresh[0] == ""


@pytest.mark.slow
def test_the_first_data_set_moves_no_global_random_state(fresh):
    """What scikit-learn imports for it draws a number at random."""
    assert fresh[1] == "True"


@pytest.mark.parametrize("name", ["digits", "smiley", "tiles"])
def test_what_info_says_is_what_load_gives(name):
    about, data = info(name), load(name)
    assert about.available
    assert (about.rows, about.features) == data.X.shape
    assert about.rows_test == len(data.X_test)
    assert (about.name, about.about) == (data.name, data.about)
    assert "seed" in about.options


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_info_never_downloads(name, tmp_path, monkeypatch):
    monkeypatch.delenv("SPARSEVAE_DATA", raising=False)
    monkeypatch.setenv("SPARSEVAE_CACHE", str(tmp_path))
    monkeypatch.setattr(pooch, "retrieve", None)
    about = info(name)
    assert not about.available
    assert about.source.startswith("http")
    assert str(tmp_path) in about.source
    assert about.options == {}
    assert (about.rows, about.rows_test, about.features) == (60_000, 10_000, 784)


def test_without_network_and_files_load_says_what_it_wants(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("offline")

    monkeypatch.delenv("SPARSEVAE_DATA", raising=False)
    monkeypatch.setenv("SPARSEVAE_CACHE", str(tmp_path))
    monkeypatch.setattr(pooch, "retrieve", fail)
    with pytest.raises(FileNotFoundError, match=r"wanted: train-images-idx3-ubyte.gz, train-labels"):
        load("mnist")


@pytest.mark.parametrize("name", ["celeba", "smiley-authors", "uci-har"])
def test_sets_fetched_by_hand_are_described_without_being_there_and_asked_for_in_words(name, tmp_path, monkeypatch):
    monkeypatch.setattr(pooch, "retrieve", None)
    monkeypatch.setenv("SPARSEVAE_DATA", str(tmp_path))
    about = info(name)
    assert (about.available, about.by_hand, info("mnist").by_hand) == (False, True, False)
    assert about.source.startswith("fetched by hand: ")
    assert "https://" in about.source
    with pytest.raises(FileNotFoundError, match="not downloaded automatically"):
        load(name)
    monkeypatch.delenv("SPARSEVAE_DATA")
    with pytest.raises(FileNotFoundError, match=r"\(SPARSEVAE_DATA is not set\)"):
        load(name)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digits", {"seed": "x"}, "seed must be an integer, 0 or above, got 'x'"),
        ("digits", {"seed": -1}, "seed must be an integer, 0 or above, got -1"),
        ("digits", {"test_fraction": "x"}, "test_fraction must be a number in .0, 1., got 'x'"),
        ("tiles", {"max_tiles": "x"}, "max_tiles must be an integer, got 'x'"),
        ("tiles", {"overlap": "no"}, "overlap must be True, False, 0 or 1, got 'no'"),
        ("smiley", {"p_attribute": "x"}, "p_attribute must be a number or a Mapping, got 'x'"),
        ("smiley", {"bow": (1, 2)}, "bow must be 4 numbers"),
        ("uci-har", {"path": 1}, "path must be a str, a PathLike or None, got 1"),
        ("x.npz", {"key": 1}, "key must be a str or None, got 1"),
    ],
)
def test_an_option_of_the_wrong_type_meets_what_was_expected(name, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=message):
        load(name, **options)


def test_names_are_sorted_and_each_has_an_entry():
    assert names() == sorted(names())
    assert {info(name).name for name in names()} == set(names())


def test_a_misspelt_name_meets_a_suggestion_and_the_list():
    known = ", ".join(names())
    with pytest.raises(ValueError, match=rf"did you mean 'mnist'\?.*{known}"):
        load("mnsit")
    with pytest.raises(ValueError, match=r"did you mean 'fashion-mnist'\?"):
        info("Fashion_MNIST")
    with pytest.raises(ValueError, match=r"unknown data set 'xyz': there are: .*\.npy, \.npz, \.csv, \.parquet"):
        load("xyz")


def test_a_misspelt_option_meets_a_suggestion_and_the_list():
    with pytest.raises(TypeError, match=r"unknown option 'max_tile' of 'tiles': did you mean 'max_tiles'\?"):
        load("tiles", max_tile=2)
    with pytest.raises(TypeError, match="unknown option 'seed' of 'mnist': there are none"):
        load("mnist", seed=0)
    with pytest.raises(TypeError, match=r"unknown option 'keys' of a file: did you mean 'key'\?"):
        load("x.npz", keys="a")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"X": np.zeros(3)}, "X must have two dimensions"),
        ({"X": np.zeros((3, 4)), "X_test": np.zeros((3, 5))}, "X has 4 features but X_test has 5"),
        ({"X": np.zeros((3, 4)), "y": np.zeros(2)}, "X has 3 rows but y has 2"),
        ({"X": np.zeros((3, 4)), "truth_test": {"S": np.zeros(2)}}, "X_test has 0 rows but truth_test"),
        ({"X": np.zeros((3, 4)), "image_shape": (2, 3)}, "does not have 4 features"),
        ({"X": np.zeros((3, 4)), "image_shape": (2, 2, 3)}, "does not have 4 features"),
        ({"X": np.zeros((3, 4)), "y": np.array([0, 2, 1]), "label_names": ("a", "b")}, "2 label names for the 3"),
        ({"X": np.zeros((3, 4)), "y": np.zeros((3, 2)), "label_names": ("a", "b", "c")}, "3 label names for the 2"),
        ({"X": np.zeros((3, 4)), "columns": ("a",)}, "1 column names for 4 features"),
    ],
)
def test_a_data_set_whose_parts_do_not_fit_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Dataset("x", **fields)
