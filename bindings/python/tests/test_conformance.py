"""Every promise of the table of scenarios, kept by both forms of this client."""

from __future__ import annotations

import subprocess

import pytest

import conformance
from support import BIN, RESULTS, TABLE


@pytest.mark.parametrize("language", list(conformance.FORMS))
def test_every_promise_of_the_table(language: str) -> None:
    server = str(BIN / "ticketing-scripted-server")
    failed = conformance.run(language, server, str(TABLE), RESULTS)
    subprocess.run([server, "report", str(RESULTS / f"{language}.jsonl")], check=False)
    for verdict in failed:
        print(f"\n{verdict['case']}: {verdict.get('why')}")
        print(*(f"  {line}" for line in verdict.get("record") or []), sep="\n")
    assert not failed, [verdict["case"] for verdict in failed]
