"""UCI HAR: accelerometer and gyroscope of a telephone at the waist of thirty people during six activities."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from sparsevae.data.dataset import Dataset
from sparsevae.data.fetch import ByHand
from sparsevae.data.files import Npz
from sparsevae.exceptions import DataFileError
from sparsevae.files import parsing, read_text

ABOUT = (
    "10,299 windows of 2.56 seconds from a telephone's accelerometer and gyroscope, 30 people in 6 activities, test "
    "people apart from training people (Anguita, Ghio, Oneto, Parra and Reyes-Ortiz, ESANN 2013); its README forbids "
    "commercial use."
)
HAR = ByHand(
    "uci-har",
    ("uci-har",),
    ("har_inertial.npz", "train/y_train.txt", "UCI HAR Dataset/train/y_train.txt"),
    "Download it at https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones and unpack "
    "it (a zip inside a zip): the folder is called 'UCI HAR Dataset'.",
)
ACTIVITIES = ("walking", "walking_upstairs", "walking_downstairs", "sitting", "standing", "laying")
CHANNELS = tuple(f"{sensor}_{axis}" for sensor in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
SAMPLES = 128  # in a window, 50 a second
FEATURES = 561


def make(*, features: bool = False, path: str | os.PathLike[str] | None = None) -> Dataset:
    """Load the raw windows, or the 561 features that the authors computed from them, with the official split.

    Two layouts are read: the original folder ("UCI HAR Dataset", with train/ and test/ in it), and, for the windows,
    a file ``har_inertial.npz`` with arrays x_train (n, 9, 128), y_train (n,), subject_train (n,), the same with
    _test, and channels (9,). Its training windows may be in another order than in the original.

    Parameters
    ----------
    features : bool
        False: the windows, 9 channels x 128 samples. True: the features, scaled to [-1, 1] by their authors; only
        the original folder has them.
    path : str, path or None
        The folder; None means ``$SPARSEVAE_DATA/uci-har/``.

    Returns
    -------
    Dataset with X float32 of shape (7352, 1152), channel after channel (``image_shape`` is (9, 128)), or (7352, 561)
    with the published names as ``columns`` (not all differ: 42 names occur three times each); X_test of 2,947 rows;
    y from 0 to 5, named by ``label_names``; and in ``truth`` the ``subject``, (n,), from 1 to 30.
    """
    folder = HAR.find(path)
    original = next((f for f in (folder / "UCI HAR Dataset", folder) if (f / "train" / "y_train.txt").is_file()), None)
    packed = folder / "har_inertial.npz"
    if features:
        if original is None:
            raise HAR.missing(f"the {FEATURES} features are in no file of {folder}: it lacks train/X_train.txt")
        columns = _feature_names(original)
        splits = [_text(original, split, ["X"], FEATURES) for split in ("train", "test")]
    else:
        columns = tuple(f"{channel}[{t}]" for channel in CHANNELS for t in range(SAMPLES))
        if packed.is_file():
            splits = _packed(packed)
        elif original is not None:
            files = [f"Inertial Signals/{channel}" for channel in CHANNELS]
            splits = [_text(original, split, files, SAMPLES) for split in ("train", "test")]
        else:
            raise HAR.missing(f"{folder} has neither har_inertial.npz nor train/y_train.txt")
    (X, y, subject), (X_test, y_test, subject_test) = splits
    return Dataset(
        "uci-har",
        X=X,
        X_test=X_test,
        y=y,
        y_test=y_test,
        image_shape=None if features else (len(CHANNELS), SAMPLES),
        truth={"subject": subject},
        truth_test={"subject": subject_test},
        columns=columns,
        label_names=ACTIVITIES,
        about=ABOUT,
    )


def _split(X: np.ndarray, activity: np.ndarray, subject: np.ndarray, source: Path) -> tuple[np.ndarray, ...]:
    """X (n, d) float32, y (n,) from 0, subject (n,), after a check of lengths and values."""
    if not len(X) == len(activity) == len(subject):
        raise ValueError(f"{source}: {len(X)} rows, {len(activity)} activities and {len(subject)} subjects")
    if not np.isin(activity, np.arange(1, len(ACTIVITIES) + 1)).all():
        raise ValueError(f"{source}: expected activities from 1 to 6, got {np.unique(activity)[:40].tolist()}")
    if not np.isin(subject, np.arange(1, 31)).all():
        raise ValueError(f"{source}: expected subjects from 1 to 30, got {np.unique(subject)[:40].tolist()}")
    return X.astype(np.float32, copy=False), (activity - 1).astype(np.uint8), subject.astype(np.uint8)


def _packed(file: Path) -> list[tuple[np.ndarray, ...]]:
    keys = [f"{what}_{split}" for split in ("train", "test") for what in ("x", "y", "subject")]
    with Npz.open(file, fault := f"expected a .npz with {', '.join(keys)} and channels") as archive:
        if missing := [key for key in (*keys, "channels") if key not in archive.members]:
            raise DataFileError(f"{file}: {fault}; there is no {', '.join(missing)}")
        archive.check(*keys)
        arrays = {key: archive.read(key) for key in (*keys, "channels")}
    if (channels := arrays["channels"].tolist()) != list(CHANNELS):
        raise ValueError(f"{file}: expected channels {', '.join(CHANNELS)}; got {str(channels)[:200]}")
    if wrong := [key for key in keys if arrays[key].dtype.kind not in "biuf"]:
        raise ValueError(f"{file}: expected numbers, got other values in {', '.join(wrong)}")
    if wrong := [key for key in keys if key[0] != "x" and arrays[key].ndim != 1]:
        raise ValueError(f"{file}: expected one number per row, which is not so in {', '.join(wrong)}")
    splits = []
    for x, y, subject in (keys[:3], keys[3:]):
        X = arrays[x]
        if X.shape[1:] != (len(CHANNELS), SAMPLES):
            raise ValueError(f"{file}: expected {x} of shape (n, {len(CHANNELS)}, {SAMPLES}), got {X.shape}")
        splits.append(_split(X.reshape(len(X), len(CHANNELS) * SAMPLES), arrays[y], arrays[subject], file))
    return splits


def _text(original: Path, split: str, files: list[str], width: int) -> tuple[np.ndarray, ...]:
    """Text files NAME_SPLIT.txt of (n, width) numbers, concatenated to X, with their activities and subjects."""
    folder = original / split
    paths = [folder / f"{file}_{split}.txt" for file in files]
    blocks = [_numbers(path, np.float32) for path in paths]
    for path, block in zip(paths, blocks, strict=True):
        if block.shape != (len(blocks[0]), width):
            raise ValueError(f"{path}: expected {len(blocks[0])} lines of {width} numbers, got {block.shape}")
    activity, subject = (_numbers(folder / f"{what}_{split}.txt", np.uint8)[:, 0] for what in ("y", "subject"))
    return _split(np.concatenate(blocks, axis=1), activity, subject, folder)


def _numbers(file: Path, dtype: type[np.generic]) -> np.ndarray:
    lines = io.StringIO(read_text(HAR.existing(file)))
    with parsing(file, "expected lines of numbers, all of one length"):
        return np.loadtxt(lines, dtype=dtype, ndmin=2)


def _feature_names(original: Path) -> tuple[str, ...] | None:
    """The names in features.txt, whose lines are such as '1 tBodyAcc-mean()-X'; None if there is no such file."""
    file = original / "features.txt"
    if not file.is_file():
        return None
    with parsing(file, "expected lines of a number and a name"):
        lines = read_text(file).splitlines()
        names = tuple(line.split(maxsplit=1)[1].strip() for line in lines if line.strip())
    if len(names) != FEATURES:
        raise ValueError(f"{file}: expected the names of {FEATURES} features, got {len(names)}")
    return names
