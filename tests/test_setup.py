"""The set-up of a fresh machine says exactly what is missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("headwater_setup", ROOT / "tools" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_java(folder: Path, version: str) -> None:
    java = folder / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("25-ea", 25), ("x", None)]
)
def test_the_version_of_java_is_read(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int | None
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert setup.java_version() == major
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert setup.java_version() is None


def test_a_java_that_is_missing_and_cannot_be_installed_is_named_with_the_command(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert setup.ensure_java() == 1
    assert "sudo apt-get install openjdk-17-jre-headless" in capsys.readouterr().err
    fake_java(tmp_path, "11.0.1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert setup.ensure_java() == 1
    shown = capsys.readouterr()
    assert f"no Java runtime was found in JAVA_HOME ({tmp_path}/nowhere)" in shown.out
    assert "correct JAVA_HOME." in shown.err


def test_nothing_is_installed_by_somebody_who_may_not(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert setup.install_with_apt("anything") is False


def test_an_environment_that_is_complete_is_left_alone(setup: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("python", "uv"):
        (tmp_path / "bin" / name).write_text("")
    setup.create_environment(tmp_path)
    assert sorted(p.name for p in (tmp_path / "bin").iterdir()) == ["python", "uv"]


def test_make_help_names_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "demo", "test", "test-all", "check", "bench", "help"):
        assert f"make {target} " in shown
    assert sys.version_info >= (3, 11)
