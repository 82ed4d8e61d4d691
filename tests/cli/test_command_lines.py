"""Claim: whatever is wrong with a command line is told in one line, before any training, and nothing is written.

400 lines: those written by hand say what they expect to be told; the others give each flag of each command, as the
command line itself lists them, no value or a wrong one.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer
from conftest import quiet

import sparsevae as sv
from sparsevae import cli
from sparsevae.cli.app import app
from sparsevae.training.step import Run

ROOT = Path(__file__).parents[2]
LINES = 400
SEED = 0
FLAWS = {
    "cut": lambda folder: _edit(folder, lambda text: text[:50]),
    "prose": lambda folder: _edit(folder, lambda text: "hello"),
    "edited": lambda folder: _edit(folder, lambda text: text.replace('"VSC"', '"VAE"')),
    "newer": lambda folder: _edit(folder, lambda text: json.dumps(json.loads(text) | {"format_version": 99})),
    "no-weights": lambda folder: _weights(folder).unlink(),
    "cut-weights": lambda folder: _weights(folder).write_bytes(b"cut"),
    "run": lambda folder: (folder / "model.json").rename(folder / "history.jsonl"),
    "nothing": lambda folder: [path.unlink() for path in folder.iterdir()],
}
"""Folders that hold no model, or no longer one, by what happened to them."""


class Line(NamedTuple):
    """A command line and what its error says, in parts."""

    words: list[str]
    message: tuple[str, ...]


def _edit(folder: Path, change: Callable[[str], str]) -> None:
    (folder / "model.json").write_text(change((folder / "model.json").read_text()))


def _weights(folder: Path) -> Path:
    return next(folder.glob("model-*.safetensors"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models and data files, sound ones and others."""
    root = tmp_path_factory.mktemp("world")
    rng, short = np.random.default_rng(SEED), sv.Training(steps=1, verbose=0, device="cpu")
    X = rng.random((12, 64)).astype(np.float32)
    quiet(sv.VSC(4, hidden=(4,), training=short), X).save(root / "vsc")
    quiet(sv.VAE(4, hidden=(4,), training=short), X).save(root / "vae")
    text = sv.Text(embedding=4)
    quiet(sv.VSC(4, hidden=(4,), text=text, training=short), ["a cow", "a clerk"] * 4).save(root / "words")
    classifier = sv.CodeClassifier(2, hidden=(4,), training=short)
    classifier.fit(X, np.arange(12) % 2).save(root / "labels")
    for name, change in FLAWS.items():
        shutil.copytree(root / "vsc", root / name)
        change(root / name)
    bad = {"one": X[:1], "empty": X[:0], "narrow": X[:, :5], "flat": X[0], "deep": np.ones((2, 2, 2, 2))}
    bad |= {"nan": np.full((3, 64), np.nan), "inf": np.full((3, 64), np.inf), "huge": np.full((3, 64), 1e300)}
    for name, array in (bad | {"X": X, "complex": X[:2].astype(complex)}).items():
        np.save(root / f"{name}.npy", array)
    np.savez(root / "two.npz", a=X, b=X)
    files = {"words.csv": b"a,b\nx,y\nz,w\n", "ragged.csv": b"a,b\n1,2\n3\n", "bytes.csv": bytes(range(256))}
    files |= {"semicolons.csv": b"a;b\n1;2\n", "numbers.csv": b"1,2\n3,4\n"}
    files |= {"latin.txt": b"caf\xe9\n", "two.txt": b"a cow\na clerk\n", "table.xlsx": b"1", "table": b"1,2\n"}
    for name, content in (files | {f"no.{ending}": b"" for ending in ("csv", "npy", "npz", "parquet", "txt")}).items():
        (root / name).write_bytes(content)
    (root / "folder.npz").mkdir()
    (root / "letters").mkdir()
    (root / "letters" / "mine.txt").write_text("mine")
    os.symlink("nowhere.npy", root / "dangling.npy")
    return root


# -- by hand ----------------------------------------------------------------------------------------------------

FIT = "fit VSC -d digits -o new"
BY_HAND = [
    # commands, arguments, flags
    ("unknown", "unknown command 'unknown': there are: fit"),
    ("ft VSC", "did you mean 'fit'?"),
    ("--nope", "no such option: --nope"),
    ("--version=3", "'--version' does not take a value"),
    ("--json fit", "no such option: --json"),
    ("data lst", "did you mean 'list'?"),
    ("data list more", "unexpected extra argument"),
    ("data info", "missing argument 'NAME'"),
    ("data info mnits", "did you mean 'mnist'?"),
    ("data info X.npy", "unknown data set 'X.npy'"),
    ("fit VSC", "missing option '--data'"),
    ("fit VSC -d digits", "missing option '--out'"),
    ("fit VCS -d digits -o new", "unknown model 'VCS': did you mean 'VSC'?"),
    ("fit VSC VAE -d digits -o new", "unexpected extra argument"),
    (f"{FIT} --aplha 1", "no such option: --aplha"),
    (f"{FIT} --no-alpha", "no such option: --no-alpha"),
    (f"{FIT} -z", "no such option: -z"),
    ("encode", "missing argument 'DIR'"),
    ("encode vsc -d digits", "missing option '--out'"),
    ("encode vsc vae -d digits -o c.npz", "unexpected extra argument"),
    ("sample vsc more", "unexpected extra argument"),
    ("demo -o new more", "unexpected extra argument"),
    # settings out of range
    (f"{FIT} --alpha 2", "alpha must be a number in (0, 1]", "got 2.0"),
    (f"{FIT} --alpha nan", "alpha must be", "got nan"),
    (f"{FIT} --alpha -inf", "alpha must be", "got -inf"),
    (f"{FIT} --steps 0", "training.steps must be an integer above 0", "got 0"),
    (f"{FIT} --steps -5", "training.steps must be an integer above 0", "got -5"),
    (f"{FIT} --steps 1.5", "'--steps': expected INT, got '1.5'"),
    (f"{FIT} --steps {'9' * 400}", "training.steps must be"),
    (f"{FIT} --batch-size 0", "training.batch_size must be an integer above 0", "got 0"),
    (f"{FIT} --learning-rate 0", "training.learning_rate must be a number above 0", "got 0.0"),
    (f"{FIT} --learning-rate 1e300", "training.learning_rate must be", "got 1e+300"),
    (f"{FIT} --learning-rate inf", "training.learning_rate must be", "got inf"),
    (f"{FIT} --validation-fraction 1", "training.validation_fraction must be a number in [0, 1)", "got 1.0"),
    (f"{FIT} --clip-norm -1", "training.clip_norm must be a number above 0", "got -1.0"),
    (f"{FIT} --n-components 0", "n_components must be an integer above 0", "got 0"),
    (f"{FIT} --n-components -3", "n_components must be an integer above 0", "got -3"),
    (f"{FIT} --n-components {10**14}", "n"),
    (f"{FIT} --hidden 0", "hidden[0] must be an integer above 0", "got 0"),
    (f"{FIT} --hidden 4,", "'--hidden': expected INT,..., got '4,'"),
    (f"{FIT} --hidden {10**13}", "hidden=(10000000000000,)", "ask for less"),
    (f"{FIT} --image-shape 8", "expected INT,INT|INT,INT,INT", "got '8'"),
    (f"{FIT} --image-shape -8,-8", "image_shape[0] must be an integer above 0", "got -8"),
    (f"{FIT} --image-shape 9,9", "image_shape must be that of a row, which has 64 features; got (9, 9)"),
    (f"{FIT} --sharpness 1,2,3", "'--sharpness': expected FLOAT,FLOAT, got '1,2,3'"),
    (f"{FIT} --variance-floor 0", "variance_floor must be a number above 0", "got 0.0"),
    (f"{FIT} --gate nonsense", "gate must be 'sigmoid', 'concrete'", "got 'nonsense'"),
    (f"{FIT} --likelihood cauchy", "likelihood must be 'auto', 'bernoulli'", "got 'cauchy'"),
    (f"{FIT} --scale log", "scale must be 'auto', 'standard'", "got 'log'"),
    (f"{FIT} --network resnet", "network must be 'auto', 'dense'", "got 'resnet'"),
    (f"{FIT} --optimizer sgd", "training.optimizer must be 'adam' or 'momentum'", "got 'sgd'"),
    (f"{FIT} --decay slow", "training.decay must be 'constant', 'cosine' or 'step'", "got 'slow'"),
    (f"{FIT} --device tpu", "training.device must be auto, cpu, cuda or cuda:N, got 'tpu'"),
    (f"{FIT} --device cuda:99", "training.device='cuda:99' is not usable here"),
    (f"{FIT} --device meta", "training.device must be auto, cpu, cuda or cuda:N, got 'meta'"),
    (f"{FIT} --split all", "expected train or test, got 'all'"),
    ("fit CapacityVAE -d digits -o new --ramp 99999999", "ramp must be within the run's 2000 steps", "got 99999999"),
    ("fit BetaTCVAE -d digits -o new --batch-size 1", "use training.batch_size=2 or more"),
    ("fit SDLGM -d digits -o new --cap 0", "cap must be an integer above 0", "got 0"),
    ("fit SDLGM -d digits -o new --slope 0", "slope must be", "got 0.0"),
    # schedules
    (f"{FIT} --schedule kl_z", "unknown schedule ''"),
    (f"{FIT} --schedule kl_z=lineal:0:1", "did you mean 'linear'?"),
    (f"{FIT} --schedule kl_z=linear:0", "linear takes start:stop:begin:end, got 'linear:0'"),
    (f"{FIT} --schedule kl_z=linear:0:1:2:3:4", "linear takes start:stop:begin:end, got 'linear:0:1:2:3:4'"),
    (f"{FIT} --schedule kl_z=linear:-1:1", "must be a number, 0 or above all along", "comes to -1.0"),
    (f"{FIT} --schedule kl_z=linear:nan:1", "training.schedules['kl_z'] must be"),
    (f"{FIT} --schedule kl=constant:1", "this model has"),
    (f"{FIT} --schedule =constant:1", "this model has"),
    (f"{FIT} --schedule kl_z=constant:1 --schedule kl_z=constant:2", "expected one value for 'kl_z'"),
    # flags that contradict each other, the model or the data
    (f"{FIT} --steps 5 --epochs 3", "give training.steps or training.epochs, not both"),
    (f"{FIT} --patience 3 --no-early-stopping", "leave early_stopping at 'auto'"),
    (f"{FIT} --restart-optimizer", "needs decay='step'"),
    (f"{FIT} --network gru", "network='gru' is for texts, and X is numbers"),
    (f"{FIT} --network asperti", "takes images of 28 x 28 x 1 (grey), got 8 x 8 x 1"),
    (f"{FIT} --likelihood spike-slab", "Use scale='none'"),
    (f"{FIT} --text-embedding 8", "--text-... flags are for texts, and digits holds numbers"),
    (f"{FIT} --text-column a", "--text-column is a column of a .csv or .parquet, and digits has none"),
    ("fit VSC -d two.txt -o new --text-column a", "and two.txt has none"),
    ("fit VSC -d two.txt -o new --likelihood gaussian", "for texts likelihood must be 'auto', got 'gaussian'"),
    ("fit VSC -d two.txt -o new --network conv", "for texts network must be", "got 'conv'"),
    ("fit PseudoVSC -d two.txt -o new", "PseudoVSC needs rows of numbers, and X holds texts"),
    ("fit SDLGM -d two.txt -o new --binary", "binary=True is for rows of numbers"),
    ("fit SDLGM -d digits -o new --features distinct --gradient paper", "cannot keep the cap of features='distinct'"),
    ("fit SDLGM -d digits -o new --tau learned", "'learned' with gradient='paper'; got 'learned'"),
    ("fit SDLGMClassifier -d X.npy -o new", "SDLGMClassifier learns from y, and X.npy (train) has none"),
    ("fit SDLGMCounter -d digits -o new", "SDLGMCounter learns from counts, and digits (train) has none"),
    # data sets and their options
    ("fit VSC -d digit -o new", "did you mean 'digits'?"),
    ("fit VSC -d  -o new", "unknown data set ''"),
    (f"{FIT} --data-option seed", "expected NAME=VALUE, got 'seed'"),
    (f"{FIT} --data-option ", "expected NAME=VALUE, got ''"),
    (f"{FIT} --data-option n=5", "unknown option 'n' of 'digits': there are: test_fraction, seed"),
    (f"{FIT} --data-option =5", "unknown option '' of 'digits'"),
    (f"{FIT} --data-option seed=1 --data-option seed=2", "expected one value for 'seed', got '1' and '2'"),
    (f"{FIT} --data-option seed=x", "seed must be an integer, 0 or above, got 'x'"),
    (f"{FIT} --data-option seed=-1", "seed must be an integer, 0 or above, got -1"),
    (f"{FIT} --data-option seed=[[[", "seed must be an integer, 0 or above, got '[[['"),
    (f"{FIT} --data-option test_fraction=2", "test_fraction must be a number in [0, 1), got 2"),
    (f"{FIT} --data-option test_fraction=nan", "test_fraction must be a number in [0, 1), got 'nan'"),
    ("fit VSC -d tiles -o new --data-option n=-4", "n must be an integer above 0, got -4"),
    ("fit VSC -d tiles -o new --data-option n=1e99", "n must be an integer above 0, got 1e+99"),
    ("fit VSC -d tiles -o new --data-option overlap=5", "overlap must be True, False, 0 or 1, got 5"),
    ("fit VSC -d tiles -o new --data-option test_fraction=.2", "unknown option 'test_fraction' of 'tiles'"),
    ("fit VSC -d X.npy -o new --split test", "X.npy has no test part"),
    ("fit VSC -d X.npy -o new --data-option key=a", "only a .npz file can contain"),
    ("fit VSC -d two.npz -o new", "two.npz", "--data-option key=a"),
    ("fit VSC -d two.npz -o new --data-option key=c", "two.npz", "unknown key 'c': there are: a, b"),
    ("fit VSC -d two.npz -o new --data-option seed=1", "unknown option 'seed' of a file"),
    # data files
    ("fit VSC -d nowhere.npy -o new", "nowhere.npy", "no such file"),
    ("fit VSC -d dangling.npy -o new", "dangling.npy"),
    ("fit VSC -d folder.npz -o new", "folder.npz"),
    ("fit VSC -d table -o new", "unknown data set 'table'", ".parquet"),
    ("fit VSC -d table.xlsx -o new", "table.xlsx", "unknown file ending '.xlsx'"),
    ("fit VSC -d words.csv -o new", "words.csv", "texts in columns a, b"),
    ("fit VSC -d words.csv -o new --text-column c", "words.csv has no column 'c': it has a, b"),
    ("fit VSC -d ragged.csv -o new", "ragged.csv"),
    ("fit VSC -d bytes.csv -o new", "bytes.csv", "UTF-8"),
    ("fit VSC -d latin.txt -o new", "latin.txt", "UTF-8"),
    *((f"fit VSC -d no.{ending} -o new", f"no.{ending}") for ending in ("csv", "npy", "npz", "parquet", "txt")),
    ("fit VSC -d empty.npy -o new", "empty.npy is empty"),
    ("fit VSC -d one.npy -o new", "1 sample", "minimum of 2"),
    ("fit VSC -d flat.npy -o new", "flat.npy", "(64,)"),
    ("fit VSC -d deep.npy -o new", "deep.npy", "(2, 2, 2, 2)"),
    ("fit VSC -d complex.npy -o new", "complex.npy", "complex128"),
    ("fit VSC -d semicolons.csv -o new", "expected commas between columns", "read_csv(..., sep=';')"),
    ("fit VSC -d nan.npy -o new", "NaN"),
    ("fit VSC -d inf.npy -o new", "infinity"),
    ("fit VSC -d huge.npy -o new", "1e+300"),
    # folders of models
    *((f"evaluate {name} -d X.npy", f"{name}/model") for name in ("cut", "prose", "edited", "newer", "nothing")),
    ("encode no-weights -d X.npy -o c.npz", "no-weights/model-"),
    ("audit cut-weights -d X.npy", "cut-weights/model-"),
    ("report run -d X.npy -o r.html", "run holds an unfinished run and no saved model yet: continue it with --resume"),
    ("second-stage run -d X.npy", "run holds an unfinished run"),
    ("sample nowhere -o s.npy", "expected a saved model (a folder) at nowhere, found nothing"),
    ("sample X.npy -o s.npy", "expected a saved model (a folder) at X.npy, found a file"),
    ("encode  -d X.npy -o c.npz", "'DIR': expected a path, got ''"),
    # places to write to
    ("fit VSC -d digits -o ", "'--out' / '-o': expected a path, got ''"),
    ("fit VSC -d digits -o X.npy", "expected a folder at X.npy, found a file"),
    ("fit VSC -d digits -o X.npy/deeper", "X.npy is no folder"),
    ("fit VSC -d digits -o letters", "letters is not from sparsevae and not empty"),
    ("fit VSC -d digits -o vsc", "vsc holds a model without a run to continue"),
    ("fit VSC -d digits -o vsc --resume", "vsc holds a model without a run to continue"),
    ("fit VSC -d digits -o cut --resume", "cut holds a model without a run to continue"),
    ("demo -o letters", "letters is not from sparsevae and not empty"),
    ("demo -o X.npy", "expected a folder at X.npy, found a file"),
    ("demo -o vsc", "vsc holds a saved 'model'"),
    ("demo -o ", "expected a path, got ''"),
    ("encode vsc -d X.npy -o ", "expected a path, got ''"),
    ("encode vsc -d X.npy -o c.txt", "--out c.txt: expected a name that ends in .npz, .parquet or .csv"),
    ("encode vsc -d numbers.csv -o numbers.csv", "--out numbers.csv is the file of --data, which would be lost"),
    ("encode vsc -d X.npy -o .npz", "--out .npz: expected a name that ends in"),
    ("encode vsc -d X.npy -o folder.npz", "expected a file to write, found a folder"),
    ("encode vsc -d X.npy -o X.npy/c.npz", "X.npy is no folder"),
    ("report vsc -d X.npy -o r.pdf", "--out r.pdf: expected a name that ends in .html"),
    ("report vsc -d X.npy -o letters/mine.txt/r.html", "mine.txt is no folder"),
    ("sample vsc -o s.txt", "--out s.txt: expected a name that ends in .npy or .png"),
    ("sample words -o s.npy", "--out s.npy: expected a name that ends in .txt"),
    # models and data that do not go together
    ("encode vsc -d narrow.npy -o c.npz", "X has 5 features, but VSC is expecting 64"),
    ("encode vsc -d two.txt -o c.npz", "X must hold numbers", "got texts"),
    ("encode vsc -d nan.npy -o c.npz", "NaN"),
    ("evaluate vsc -d X.npy --data-option column=a", "unknown option 'column' of a file"),
    ("evaluate words -d X.npy", "expected texts", "shape (12, 64)"),
    ("evaluate words -d words.csv --data-option column=c", "words.csv has no column 'c'"),
    ("evaluate words -d words.csv --data-option column", "got 'column'"),
    ("evaluate words -d words.csv --data-option col=a", "a table of texts takes column=NAME, got 'col=a'"),
    ("evaluate words -d two.txt --data-option column=a", "a .txt has none, got 'column=a'"),
    ("evaluate labels -d X.npy", "CodeClassifier learns from y, and X.npy (train) has none"),
    (
        "evaluate labels -d digits --caps 3",
        "--caps and --importance measure codes of X, and CodeClassifier predicts labels",
    ),
    ("report labels -d digits -o r.html", "CodeClassifier predicts labels: use evaluate"),
    ("audit labels -d digits", "needs a model with p(x|z), and CodeClassifier has none"),
    ("second-stage labels -d digits", "needs a model with p(x|z), and CodeClassifier has none"),
    ("sample labels -o s.npy", "needs a model with p(x|z), and CodeClassifier has none"),
    # numbers of what is asked for
    ("encode vsc -d X.npy -o c.npz --max-active 0", "max_active must be an integer above 0", "got 0"),
    ("encode vae -d X.npy -o c.npz --max-active 3", "VAE codes are dense"),
    ("evaluate vsc -d X.npy --caps 0", "a cap must be an integer above 0", "got 0"),
    ("evaluate vsc -d X.npy --caps 1,,2", "'--caps': expected INT,..., got '1,,2'"),
    ("evaluate vae -d X.npy --caps 3", "VAE codes are dense"),
    ("evaluate vsc -d X.npy --importance 0", "n_samples must be an integer above 0", "got 0"),
    (f"evaluate vsc -d X.npy --importance {10**16}", "n"),
    ("audit vsc -d X.npy --gain-rows 0", "expected an integer, 1 or above, got '0'"),
    ("second-stage vsc -d X.npy --steps 0", "training.steps must be an integer above 0", "got 0"),
    ("second-stage vsc -d X.npy --n-components -1", "n_components must be an integer above 0", "got -1"),
    ("second-stage vsc -d one.npy", "minimum of 2"),
    ("sample vsc -n 0", "expected an integer, 1 or above, got '0'"),
    ("sample vsc --second-stage -o s.npy", "this model has no second stage"),
    ("sample vsc -o s.png --image-shape 9,9", "(height, width, 3) of 64 values; got (9, 9)"),
    ("sample vsc -o s.png --image-shape -8,-8", "of 64 values, got -8"),
    ("sample vsc -o s.npy --image-shape 8,8", "--image-shape is for a .png, and --out is s.npy"),
    (f"sample vsc -o s.npy -n {10**15}", "n=1000000000000000 would take"),
    # words that are no text, or too much of it
    ("fit V\udcffSC -d digits -o new", "unknown model 'V\\udcffSC'"),
    ("fit VSC -d \udcff -o new", "unknown data set '\\udcff'"),
    ("fit VSC -d \udcff.npy -o new", "\\udcff.npy"),
    (f"{FIT} --alpha \udcff", "expected FLOAT, got '\\udcff'"),
    (f"{FIT} --\udcff", "no such option: --\\udcff"),
    ("evaluate \udcff -d X.npy", "at \\udcff, found nothing"),
    (f"{FIT} --alpha ½", "expected FLOAT, got '½'"),
    (f"{FIT} --scale {'x' * 9000}", "scale must be 'auto'"),
    (f"fit VSC -d {'x' * 9000} -o new", "unknown data set"),
    (f"fit VSC -d {'x' * 9000}.npy -o new", "too long"),
    (f"fit VSC -d digits -o {'x' * 9000}", "too long"),
    (f"encode {'x' * 9000} -d X.npy -o c.npz", "x"),
    (f"sample vsc -o {'x' * 300}.npy", "too long"),
]
"""Words (a blank more is an empty one) and what their error says."""


# -- by the command line's own account --------------------------------------------------------------------------

LEGAL = {
    "fit": "-d digits -o new",
    "encode": "vsc -d X.npy -o c.npz",
    "sample": "vsc -o s.npy",
    "report": "vsc -d X.npy -o r.html",
    "data": "",
    "demo": "-o new",
}
"""The least that a command needs; of others as `evaluate`."""
ANY_TEXT = ("title", "text_column", "out", "data", "data_option", "split", "schedules")
"""Parameters whose texts have no wrong form of their own, or are known by another name."""


def commands() -> Iterator[tuple[list[str], Any]]:
    """Every command that has no commands under it, and the words that lead to it."""

    def below(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
        if not hasattr(command, "list_commands"):
            yield words, command
            return
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from below(command.get_command(context, name), [*words, name])

    return below(typer.main.get_command(app), [])


def wrong(words: list[str], option: Any, rng: random.Random) -> Iterator[Line]:
    """Command lines that give one flag no value, and one that it cannot have."""
    flag, name = max(option.opts, key=len), option.name
    start = [*words, *(LEGAL.get(words[0], "vsc -d X.npy") if words != ["data", "info"] else "digits").split()]
    if option.is_flag:
        for each in {flag, *option.secondary_opts}:
            yield Line([*start, f"{each}=maybe"], (each, "does not take a value"))
        return
    yield Line([*start, flag], (flag, "requires an argument"))
    if name not in ANY_TEXT:
        value = rng.choice(["non-sense", "1;2", "0x1p", "[1]", "{}", "\udcff", "linear"])
        reported = re.sub("^text_", "text.", name) if "TEXT" in (option.metavar or "") else flag
        yield Line([*start, flag, value], (reported, repr(value)))


@functools.cache
def generated() -> tuple[Line, ...]:
    """A line for each flag that there is, of some command that has it; then more of them in any order."""
    rng, found = random.Random(SEED), dict[tuple[str, str], list[Line]]()
    for words, command in commands():
        for option in command.params:
            if option.param_type_name == "option":
                found.setdefault((words[0], option.name), []).extend(wrong(words, option, rng))
    for each in found.values():
        rng.shuffle(each)
    rest = [line for _, *more in found.values() for line in more]
    rng.shuffle(rest)
    return (*(each[0] for each in found.values()), *rest)


def by_hand() -> list[Line]:
    return [Line(words.split(" "), message) for words, *message in BY_HAND]  # type: ignore[arg-type]


def lines() -> list[Line]:
    """All of them."""
    return [*by_hand(), *generated()][:LINES]


# -- the claim --------------------------------------------------------------------------------------------------


def tree(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (s.st_size, s.st_mtime_ns) for p in root.rglob("*") for s in [p.lstat()]}


def problems(line: Line, code: int, out: str, err: str) -> list[str]:
    """What a command line's answer lacks."""
    found = [] if code in (1, 2) else [f"exit code {code}"]
    found += ["stdout"] if out else []
    found += [] if err.count("\n") == 1 and err.startswith("sparsevae: error: ") else ["not one line"]
    found += [] if len(err) < 2100 else [f"{len(err)} characters"]
    return found + [f"lacks {part!r}" for part in line.message if part not in err]


def check(some: list[Line], world: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(self: Run) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr(Run, "advance", trained)
    monkeypatch.chdir(world)
    failed, before = [], tree(world)
    capsys.readouterr()
    for line in some:
        try:
            code = cli.main(line.words)
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
            capsys.readouterr()
        else:
            out, err = capsys.readouterr()
            found = problems(line, code, out, err) and [*problems(line, code, out, err), err]
        if tree(world) != before:
            found.append("wrote something")
            before = tree(world)
        if found:
            failed.append(f"{' '.join(line.words)[:200]!r}: {'; '.join(found)}")
    assert not failed, "\n".join(failed)


def test_a_malformed_command_line_is_refused_in_one_line(
    world: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice of them."""
    check(by_hand()[::4], world, capsys, monkeypatch)


@pytest.mark.slow
def test_all_malformed_command_lines_are_refused_in_one_line(
    world: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(lines()) == LINES
    given = {word.partition("=")[0] for line in lines() for word in line.words if word.startswith("-")}
    known = [{*o.opts, *o.secondary_opts} for _, c in commands() for o in c.params if o.param_type_name == "option"]
    assert [names for names in known if not names & given] == []
    check(lines(), world, capsys, monkeypatch)


@pytest.mark.slow
def test_thirty_of_them_as_processes(world: Path) -> None:
    failed, before = [], tree(world)
    for line in random.Random(SEED).sample(lines(), 30):
        words = [sys.executable, "-m", "sparsevae", *line.words]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, capture_output=True, text=True, cwd=world, env=environment, timeout=120)
        if found := problems(line, done.returncode, done.stdout, done.stderr):
            failed.append(f"{' '.join(line.words)[:200]!r}: {'; '.join(found)}; {done.stderr[-500:]}")
    assert not failed, "\n".join(failed)
    assert tree(world) == before
