"""The code in the pages, run. From the repository's root

    python -m docs.outputs

runs every ```python block of README.md and docs/*.md, and writes what it prints into the ```text block right below it.
The blocks of a page share their names, like the cells of one session; each page has a session of its own, on one thread
and in an empty folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparsevae.threads import threads

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(\n```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def session(page: Path, names: dict[str, Any] | None = None) -> Iterator[tuple[re.Match[str], str]]:
    """Every block of a page, in order, with what it prints now; `names` fills with what the blocks define."""
    text = page.read_text(encoding="utf-8")
    names = {} if names is None else names
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), threads(1):
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start("code"))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                # The empty lines make a traceback point at the page's own line.
                exec(compile("\n" * line + block["code"], str(page), "exec"), names)
            yield block, "".join(f"{said.rstrip()}\n" for said in printed.getvalue().splitlines())


def refreshed(page: Path) -> str:
    """The page's text with today's outputs."""
    text, parts, end = page.read_text(encoding="utf-8"), [], 0
    for block, printed in session(page):
        below = f"\n```text\n{printed}```\n" if printed else ""
        parts += [text[end : block.start()], f"```python\n{block['code']}```\n", below]
        end = block.end()
    return "".join([*parts, text[end:]])


def main() -> None:
    for page in PAGES:
        text = refreshed(page)
        changed = text != page.read_text(encoding="utf-8")
        page.write_text(text, encoding="utf-8")
        print(f"{os.path.relpath(page, ROOT)}: {'new outputs' if changed else 'as it was'}")


if __name__ == "__main__":
    main()
