"""Each piece of Python in the documentation is run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import ticketing
from support import ROOT, Server, python, said

PAGES = ["docs/python.md", "README.md", "bindings/python/README.md"]
SNIPPETS = [
    pytest.param(snippet, id=f"{page}-{number}")
    for page in PAGES
    for number, snippet in enumerate(
        re.findall(r"^```python\n(.*?)^```", Path(ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    )
]


def test_every_page_has_python() -> None:
    ids = "".join(str(snippet.id) for snippet in SNIPPETS)
    assert all(page in ids for page in PAGES)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(server: Server, snippet: str) -> None:
    said(python(snippet.replace("127.0.0.1:5225", server.address)))


@pytest.mark.parametrize("module", [info.name for info in pkgutil.iter_modules(ticketing.__path__)] + ["__init__"])
def test_an_example_of_a_docstring_runs(module: str) -> None:
    tested = ticketing if module == "__init__" else importlib.import_module(f"ticketing.{module}")
    result = doctest.testmod(tested, extraglobs=dict(vars(ticketing)))
    assert result.failed == 0
