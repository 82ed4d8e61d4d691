"""Claims: a folder imports only from folders before it, files stay small, and names are the field's words."""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sparsevae"
FILES = sorted(PACKAGE.rglob("*.py"))

ORDER = [
    "exceptions",
    "checks",
    "messages",
    "files",
    "tables",
    "threads",
    "schedules",
    "text",
    "parameters",
    "storage",
    "metrics",
    "data",
    "inputs",
    "sampling",
    "distributions",
    "networks",
    "likelihoods",
    "latent",
    "refinement",
    "testing",
    "training",
    "estimator",
    "models",
    "analysis",
    "report",
    "cli",
]
"""Modules and folders of the package; each imports only from those before it, and from itself."""

MOST_FILES, MOST_MODULES, MOST_LINES, MEDIAN_LINES = 15, 10, 450, 130


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in FILES}


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Modules of the package that a file imports anywhere; and whether for annotations alone."""

    def visit(node: ast.AST, typing: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, typing) for alias in child.names if alias.name.startswith("sparsevae"))
            elif isinstance(child, ast.ImportFrom):
                assert not child.level, f"{path}: name the module, {ast.unparse(child)}"
                if (child.module or "").startswith("sparsevae"):
                    for alias in child.names:
                        full = f"{child.module}.{alias.name}"
                        yield (full if full in MODULES else str(child.module)), typing
            yield from visit(
                child, typing or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
            )

    return visit(ast.parse(path.read_text(encoding="utf-8")), False)


def part_of(module: str) -> str:
    """The folder or top-level module that it belongs to; "" for the package itself."""
    return [*module.split("."), ""][1]


def test_the_order_names_every_folder_and_module() -> None:
    parts = {part_of(module) for module in MODULES} - {"", "__main__"}
    assert parts == set(ORDER)


@pytest.mark.parametrize("part", ORDER)
def test_a_folder_imports_only_from_those_before_it(part: str) -> None:
    allowed = set(ORDER[: ORDER.index(part) + 1])
    wrong = [
        f"{module} imports {target}"
        for module, path in MODULES.items()
        if part_of(module) == part
        for target, _ in imported(path)
        if part_of(target) not in allowed and target != "sparsevae"  # the package itself has the version
    ]
    assert wrong == []


def test_no_two_modules_need_each_other() -> None:
    """Not even inside functions: an import there is for speed of start-up, never to hide a cycle."""
    edges = {
        module: {target for target, typing in imported(path) if not typing} - {module}
        for module, path in MODULES.items()
    }
    lazy = {"sparsevae", "sparsevae.__main__"}  # the package itself offers everything, on demand
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join([*above[above.index(module) :], module])
        if module in done or module in lazy:
            return
        for target in sorted(edges.get(module, ())):
            visit(target, (*above, module))
        done.add(module)

    for module in MODULES:
        visit(module, ())


def test_folders_and_files_are_small() -> None:
    folders = {path.parent for path in FILES}
    counts = {folder: len(list(folder.glob("*.py"))) for folder in folders}
    assert counts.pop(PACKAGE) <= MOST_MODULES
    assert {str(folder): n for folder, n in counts.items() if n > MOST_FILES} == {}
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {str(path): n for path, n in lines.items() if n > MOST_LINES} == {}
    assert statistics.median(n for path, n in lines.items() if path.name != "__init__.py") <= MEDIAN_LINES


# -- words ----------------------------------------------------------------------------------------------------------

DIALECT = {
    "advise",
    "borrowed",
    "driven",
    "hear",
    "heard",
    "hears",
    "held",
    "hold",
    "law",
    "laws",
    "lend",
    "lent",
    "pay",
    "pays",
    "said",
    "say",
    "says",
    "settle",
    "settled",
    "settles",
    "still",
    "story",
    "surcharge",
    "tell",
    "telling",
    "tells",
    "told",
    "usual",
    "wild",
}
"""Whole words, between underscores or capitals, that no identifier has: each had several meanings here."""

FIELDS_OWN = {
    "held_out": "rows that are held out",
    "n_held_out": "how many",
    "hold": "an argument of noise_experiment: epochs in which the noise is held at its largest",
    "tell": "where a file is read at, Python's own",
    "variance_law": "the variance law of Asperti's paper",
}
"""Identifiers with such a word that is the field's own or public, and why. Names of tests are sentences, and free."""


def words_of(identifier: str) -> list[str]:
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)


def identifiers(path: Path) -> Iterator[tuple[str, int]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.NAME:
            yield token.string, token.start[0]


def test_words_of_an_identifier() -> None:
    assert words_of("_told_by") == ["told", "by"]
    assert words_of("HeldBack") == ["Held", "Back"]
    assert words_of("KLLaw") == ["KL", "Law"]


def test_identifiers_are_the_fields_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for folder in ("sparsevae", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, line in identifiers(path)
        if name not in FIELDS_OWN
        and not name.startswith("test_")
        and DIALECT.intersection(word.lower() for word in words_of(name))
    ]
    assert found == []


def test_the_exceptions_are_used() -> None:
    used = {name for path in FILES for name, _ in identifiers(path)}
    assert set(FIELDS_OWN) <= used
