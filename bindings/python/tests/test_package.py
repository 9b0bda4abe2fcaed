"""The wheel, installed in a fresh place outside of the tree, and used from there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import ticketing
from support import ROOT, Server

WHEEL = os.environ.get("TICKETING_WHEEL", "")


@pytest.mark.skipif(not WHEEL, reason="TICKETING_WHEEL names no wheel: cargo xtask test builds one")
def test_the_wheel_is_installed_and_used_elsewhere(server: Server, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    interpreter = str(tmp_path / "venv" / "bin" / "python")
    install = [interpreter, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", WHEEL]
    subprocess.run(install, check=True, cwd=tmp_path)
    script = f"""
import asyncio, ticketing
async def main():
    async with ticketing.TicketBroker("{server.address}") as broker:
        async with broker.lock("package") as ticket:
            print(ticketing.__version__, ticketing.__file__)
asyncio.run(main())
"""
    used = subprocess.run(
        [interpreter, "-I", "-c", script], check=True, cwd=tmp_path, capture_output=True, text=True
    )
    version, where = used.stdout.split()
    assert (version, used.stderr) == (ticketing.__version__, "")
    assert where.startswith(str(tmp_path))


@pytest.mark.skipif(not WHEEL, reason="TICKETING_WHEEL names no wheel: cargo xtask test builds one")
def test_the_wheel_holds_what_it_must_and_nothing_else() -> None:
    with zipfile.ZipFile(WHEEL) as wheel:
        names = wheel.namelist()
        metadata = next(name for name in names if name.endswith("METADATA"))
        text = wheel.read(metadata).decode()
    assert "cp310-abi3" in WHEEL
    assert f"\nVersion: {ticketing.__version__}\n" in text
    assert "\nRequires-Python: >=3.10\n" in text
    assert "ticketing/py.typed" in names and "ticketing/_ticketing.pyi" in names
    assert not [name for name in names if "test" in name or "bench" in name]


def test_versions_are_one() -> None:
    workspace = (ROOT / "Cargo.toml").read_text()
    found = re.search(r'^version = "(.*)"$', workspace, re.MULTILINE)
    assert found is not None and found[1] == ticketing.__version__
    assert sys.version_info >= (3, 10)
