"""Claim: the pages are true. Their code runs and prints what they say, and what they list is what there is."""

from __future__ import annotations

import pkgutil
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from test_house import ORDER

import sparsevae as sv
from docs.outputs import BLOCK, PAGES, ROOT, session
from docs.recorder import Record, records
from docs.tables import TABLES, refreshed, report
from sparsevae.estimator.fields import FromTexts, ObservedData, SparseCodes, Units
from sparsevae.likelihoods.choose import LIKELIHOODS
from sparsevae.models import REGISTRY
from sparsevae.networks.architectures import NETWORKS
from sparsevae.parameters import documented

SHORT = 200  # steps of a run that says nothing about its length; no page prints what comes of it


def words(text: str) -> set[str]:
    """Words of four letters and more: digits, and the short marks of tables, change with a machine's rounding."""
    return set(re.findall(r"[a-z]{4,}", text.lower()))


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.name, marks=[] if p.name == "README.md" else pytest.mark.slow) for p in PAGES]
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: Any = sv.Training.resolved
    monkeypatch.setattr(sv.Training, "resolved", lambda self, n, **own: resolved(self, n, **own | {"steps": SHORT}))
    for block, printed in session(page):
        shown = block["output"] or ""
        assert len(printed.splitlines()) == len(shown.splitlines()), printed
        assert words(printed) == words(shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_takes_from_the_library_is_there(page: Path) -> None:
    code = "".join(block["code"] for block in BLOCK.finditer(page.read_text(encoding="utf-8")))
    compile(code, page.name, "exec")
    exec("\n".join(re.findall(r"^(?:import|from) .*", code, re.MULTILINE)), {})
    for module, name in re.findall(r"\b(sv|metrics)\.(\w+(?:\.\w+)*)", code):
        attrgetter(name)({"sv": sv, "metrics": sv.metrics}[module])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {Path(p).name for page in PAGES for p in re.findall(r"images/\w+\.png", page.read_text(encoding="utf-8"))}
    assert {p.name for p in (ROOT / "docs/images").iterdir()} == shown


def test_the_page_of_models_has_every_model_with_its_parameters_and_paper() -> None:
    lines = (ROOT / "docs/models.md").read_text(encoding="utf-8").splitlines()
    shared = {
        p.name for base in (sv.SparseCoder, Units, ObservedData, FromTexts, SparseCodes) for p in documented(base)
    }
    for name, cls in REGISTRY.items():
        rows = [line for line in lines if line.startswith(f"| `{name}")]
        assert len(rows) >= 2, f"{name} needs a row in both tables of docs/models.md: what it is, and its paper"
        base = REGISTRY["VSC"] if name == "PseudoVSC" else sv.SparseCoder  # whose row says "as VSC"
        own = {p.name for p in documented(cls)} - shared - {p.name for p in documented(base)}
        assert [p for p in sorted(own) if f"`{p}`" not in " ".join(rows)] == []


def test_sdlgm_is_cited_by_its_authors_and_title() -> None:
    title = "Learning sparsity of representations with discrete latent variables"
    assert f"Xu, Onoro Rubio, Serra and Niepert, *{title}*" in shown("docs/models.md")
    for cls in (sv.SDLGM, sv.SDLGMClassifier, sv.SDLGMCounter):
        assert f'Xu, Onoro Rubio, Serra, Niepert, "{title}"' in " ".join((cls.__doc__ or "").split())


def test_the_page_of_models_has_every_likelihood_and_network() -> None:
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))
    assert rows == {*LIKELIHOODS, *NETWORKS} - {"auto"}


def test_the_readme_lists_every_model() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \| (?:CSR|dense)", text, re.MULTILINE)) == set(REGISTRY)


def test_the_map_of_the_design_page_is_the_tree() -> None:
    """A row for every module at the top and every folder with its files, in the order in which they may import."""
    text = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_]+\.py|[a-z_/]+/)` \| ([^|]|\\\|)+ \| ([^|]*)\|$", text, re.MULTILINE)
    found = [(name, re.findall(r"`(\w+)`", files)) for name, _, files in rows]
    package = ROOT / "sparsevae"
    tree = {p.name: list[str]() for p in package.glob("*.py") if not p.name.startswith("__")}
    for folder in {p.parent for p in package.rglob("*.py")} - {package}:
        stems = {p.stem for p in folder.glob("*.py")} - {"__init__"}
        tree[f"{folder.relative_to(package).as_posix()}/"] = sorted(stems)
    assert len(found) == len(dict(found))
    assert dict(found) == tree
    assert list(dict.fromkeys(re.split(r"[./]", name)[0] for name, _ in found)) == ORDER


def test_every_file_that_a_page_names_is_there() -> None:
    """As `folder/file.py` from the root or the package, or by its name alone; and as a dotted name of the package."""
    files = [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py") if p.relative_to(ROOT).parts[0][0] != "."]
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"(?<![\w/])([\w/]+\.py)\b", text)
        assert [n for n in named if not any(f"/{f}".endswith(f"/{n}") for f in files)] == [], page.name
        for dotted in re.findall(r"\bsparsevae(?:\.[a-z_]\w*)+(?:\.[A-Z]\w*)?", text):
            pkgutil.resolve_name(dotted)


@pytest.mark.parametrize("page", dict.fromkeys(page for page, _, _ in TABLES), ids=lambda page: page.name)
def test_tables_of_measured_numbers_are_those_of_the_result_files(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == refreshed(page)


def test_the_readme_has_the_speed_and_bounds_of_the_last_runs() -> None:
    gpu, cpu = (report(f"benchmarks/results/{name}.json")["speed"]["batch 100"] for name in ("h200", "cpu"))
    coding = report("benchmarks/results/cpu-coding.json")["coding"]
    bounds = report("reproductions/results/vsc_mnist.json")["verdict"]
    text = shown("README.md")
    wanted = [f"{gpu['contenders'][name]['times_peer']:.1f}" for name in ("ours", "ours, compiled")]
    wanted += [f"{cpu['contenders'][name]['times_peer']:.2f}" for name in ("ours", "ours, compiled")]
    (times,) = (v["measured"] for v in coding["verdicts"] if v["what"].startswith("encoding speed"))
    wanted += [f"{times:.1f} times as many rows"]
    wanted += [f"{bounds[name]['measured']:.1f}" for name in ("elbo_mean", "importance_mean")]
    errors = (f"{coding[name]['mse']:.4f}".removeprefix("0") for name in ("vsc", "omp"))
    wanted += [" per pixel against ".join(errors)]
    assert [figure for figure in wanted if figure not in text] == []


def test_the_page_of_numbers_has_the_bounds_of_the_last_runs() -> None:
    bounds = report("reproductions/results/vsc_mnist.json")["verdict"]
    wanted = [f"{bounds[name]['measured']:.2f}" for name in ("elbo_mean", "elbo_worst", "importance_mean")]
    assert [figure for figure in wanted if figure not in shown("docs/numbers.md")] == []


def test_the_page_of_discrete_codes_compares_with_the_bounds_of_the_last_run_of_vsc() -> None:
    bounds = report("reproductions/results/vsc_mnist.json")["verdict"]
    wanted = [f"{bounds[name]['measured']:.1f}" for name in ("elbo_mean", "importance_mean")]
    assert f"a code of real numbers has {' and '.join(wanted)}" in shown("docs/discrete.md")


def shown(page: str) -> str:
    """A page's text on one line."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def visited() -> dict[str, Record]:
    return records()


def test_an_array_visits_no_module_of_texts(visited: dict[str, Record]) -> None:
    for record in visited.values():
        assert {"latent/model.py", "inputs/arrays.py", "training/step.py"} & record.files
        assert [f for f in record.files if f.startswith("text/") or f == "inputs/texts.py"] == []


def test_the_files_visited_are_about_those_of_the_design_page(visited: dict[str, Record]) -> None:
    """Within a tenth: the page is written anew by hand when a change of the code moves them further."""
    page = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    for name, record in visited.items():
        (row,) = re.findall(rf"^\| {name} \| \d+ \| (\d+) \| \d+ \| (\d+) \|$", page, re.MULTILINE)
        assert [len(record.files), record.calls.total()] == pytest.approx([int(n) for n in row], rel=0.1), name
