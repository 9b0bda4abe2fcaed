"""The types are complete, and true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ticketing

PACKAGE = Path(__file__).resolve().parents[1]


def check(*command: str, cwd: Path = PACKAGE) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_is_content_with_the_package_and_its_users() -> None:
    check("mypy")


def test_the_stub_says_what_the_extension_module_has() -> None:
    check("mypy.stubtest", "--mypy-config-file", "pyproject.toml", "ticketing._ticketing")


def test_pyright_is_content() -> None:
    check("pyright", "--pythonpath", sys.executable)


def test_every_public_name_has_its_types(tmp_path: Path) -> None:
    # Elsewhere, so that it looks at what is installed.
    verify = ["--ignoreexternal", "--verifytypes", "ticketing"]
    check("pyright", "--pythonpath", sys.executable, *verify, cwd=tmp_path)


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(ticketing.__file__).parent / "py.typed").exists()


def test_every_public_name_has_a_docstring() -> None:
    for name in ticketing.__all__:
        thing = getattr(ticketing, name)
        if not isinstance(thing, type):
            continue
        assert thing.__doc__, name
        for member, value in vars(thing).items():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                inherited = issubclass(thing, ticketing.Acquire) and member in ("send", "throw", "close")
                assert value.__doc__ or inherited, f"{name}.{member}"
