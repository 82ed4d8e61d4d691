"""UCI HAR: both layouts give the same windows, labels start at 0, and no person is in both parts."""

import os
from pathlib import Path

import numpy as np
import pytest

from sparsevae.data import info, load
from sparsevae.data.sets import har

REAL = Path(os.environ.get("SPARSEVAE_DATA", "")) / "uci-har"
ROWS = {"train": 6, "test": 3}


@pytest.fixture
def made_up():
    """Windows, activities and subjects of nine rows; features too."""
    rng = np.random.default_rng(0)
    arrays = {"channels": np.array(har.CHANNELS)}
    for split, n in ROWS.items():
        arrays[f"x_{split}"] = rng.standard_normal((n, 9, 128)).astype(np.float32)
        arrays[f"y_{split}"] = np.arange(n, dtype=np.int8) % 6 + 1
        arrays[f"subject_{split}"] = np.arange(n, dtype=np.int8) + (1 if split == "train" else 20)
        arrays[f"features_{split}"] = rng.uniform(-1, 1, (n, 561)).astype(np.float32)
    return arrays


def write_packed(folder, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "har_inertial.npz", **{k: v for k, v in arrays.items() if not k.startswith("features")})


def write_original(folder, arrays):
    for split in ROWS:
        signals = folder / split / "Inertial Signals"
        signals.mkdir(parents=True)
        for c, channel in enumerate(har.CHANNELS):
            np.savetxt(signals / f"{channel}_{split}.txt", arrays[f"x_{split}"][:, c], fmt="%.9e")
        np.savetxt(folder / split / f"X_{split}.txt", arrays[f"features_{split}"], fmt="%.9e")
        np.savetxt(folder / split / f"y_{split}.txt", arrays[f"y_{split}"], fmt="%d")
        np.savetxt(folder / split / f"subject_{split}.txt", arrays[f"subject_{split}"], fmt="%d")
    (folder / "features.txt").write_text("".join(f"{i} feature-{i}()\n" for i in range(1, 562)))


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEVAE_DATA", str(tmp_path))
    return tmp_path / "uci-har"


@pytest.mark.parametrize("layout", ["packed", "original", "UCI HAR Dataset"])
def test_every_layout_gives_the_windows_channel_after_channel(own, made_up, layout):
    if layout == "packed":
        write_packed(own, made_up)
    else:
        write_original(own / layout if " " in layout else own, made_up)
    assert info("uci-har").available
    data = load("uci-har")
    parts = {"train": (data.X, data.y, data.truth), "test": (data.X_test, data.y_test, data.truth_test)}
    for split, (X, y, truth) in parts.items():
        np.testing.assert_array_equal(X.reshape(-1, *data.image_shape), made_up[f"x_{split}"])
        np.testing.assert_array_equal(y, made_up[f"y_{split}"] - 1)
        np.testing.assert_array_equal(truth["subject"], made_up[f"subject_{split}"])
    assert data.X.dtype == np.float32
    assert data.columns[0] == "body_acc_x[0]"
    assert data.columns[128 + 3] == "body_acc_y[3]"
    assert data.label_names[data.y[3]] == "sitting"


def test_the_features_are_read_from_the_original_folder(own, made_up):
    write_packed(own, made_up)
    write_original(own / "UCI HAR Dataset", made_up)
    data = load("uci-har", features=True)
    np.testing.assert_array_equal(data.X, made_up["features_train"])
    np.testing.assert_array_equal(data.X_test, made_up["features_test"])
    assert (data.image_shape, data.columns[560]) == (None, "feature-561()")
    np.testing.assert_array_equal(data.y, made_up["y_train"] - 1)
    np.testing.assert_array_equal(data.truth["subject"], made_up["subject_train"])


def test_features_that_are_not_there_are_asked_for(own, made_up):
    write_packed(own, made_up)
    with pytest.raises(FileNotFoundError, match=r"561 features are in no file.*path=.*archive\.ics\.uci\.edu"):
        load("uci-har", features=True)
    write_original(own, made_up)
    (own / "test" / "X_test.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"X_test\.txt does not exist"):
        load("uci-har", features=True)


def test_where_there_is_none_the_error_says_where_to_get_it_and_where_to_put_it(own):
    assert not info("uci-har").available
    assert "archive.ics.uci.edu" in info("uci-har").source
    own.mkdir()
    for path in (None, own):
        with pytest.raises(FileNotFoundError) as caught:
            load("uci-har", path=path)
        for part in ("archive.ics.uci.edu", str(own), "path="):
            assert part in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.zeros((6, 128, 9))}, r"expected x_train of shape \(n, 9, 128\), got \(6, 128, 9\)"),
        ({"y_test": np.zeros(3)}, r"expected activities from 1 to 6, got \[0"),
        ({"subject_test": np.ones(2)}, "3 rows, 3 activities and 2 subjects"),
        ({"channels": np.array(har.CHANNELS[::-1])}, "expected channels body_acc_x"),
    ],
)
def test_a_packed_file_that_does_not_fit_is_refused(own, made_up, change, message):
    write_packed(own, made_up | change)
    with pytest.raises(ValueError, match=message):
        load("uci-har")


def test_damaged_files_are_refused_by_name(own, made_up):
    write_original(own, made_up)
    signal = own / "test" / "Inertial Signals" / "body_gyro_y_test.txt"
    np.savetxt(signal, np.zeros((2, 128)))
    with pytest.raises(ValueError, match=r"body_gyro_y_test\.txt: expected 3 lines of 128 numbers, got \(2, 128\)"):
        load("uci-har")
    signal.write_text("1 2\n3 x\n")
    with pytest.raises(ValueError, match=r"body_gyro_y_test\.txt: expected lines of numbers"):
        load("uci-har")
    (own / "har_inertial.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"har_inertial\.npz: expected a \.npz with x_train"):
        load("uci-har")


@pytest.mark.skipif(not (REAL / "har_inertial.npz").is_file(), reason="needs $SPARSEVAE_DATA/uci-har")
def test_the_real_windows_are_the_published_ones():
    data, about = load("uci-har", path=REAL), info("uci-har")
    assert (about.rows, about.rows_test, about.features) == (len(data.X), len(data.X_test), data.X.shape[1])
    assert np.bincount(data.y).tolist() == [1226, 1073, 986, 1286, 1374, 1407]
    assert np.bincount(data.y_test).tolist() == [496, 471, 420, 491, 532, 537]
    people, others = (set(truth["subject"].tolist()) for truth in (data.truth, data.truth_test))
    assert (len(people), len(others), people & others) == (21, 9, set())
    # total = body + gravity; gravity hardly moves within a window, and is 1 g whichever way the telephone lies
    windows = data.X.reshape(-1, 9, 128)
    total, gravity = windows[:, 6:], windows[:, 6:] - windows[:, :3]
    assert gravity.std(2).mean() < total.std(2).mean() / 10
    strength = np.linalg.norm(gravity.mean(2), axis=1)
    assert strength.mean() == pytest.approx(1, abs=0.03)
    assert strength.std() < 0.02
    # a walker's telephone shakes, a lying one's does not
    shaking = windows[:, :3].std(2).mean(1)
    assert shaking[data.y < 3].min() > np.median(shaking[data.y >= 3])
