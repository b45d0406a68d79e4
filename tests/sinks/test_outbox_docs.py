"""The guide to outboxes prints what it says."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.settings import load_settings
from tests.test_docs import blocks


def test_the_guide_to_outboxes_prints_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    out = io.StringIO()
    with redirect_stdout(out):
        exec(blocks("docs/outbox.md", "python")[0], names)
    names["hw"].close()  # type: ignore[attr-defined]
    assert out.getvalue() == blocks("docs/outbox.md", "text")[0]


def test_the_settings_of_the_guide_to_the_service_are_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    defaults = load_settings().service
    Path("headwater.yaml").write_text(blocks("docs/service.md", "yaml")[0])
    assert load_settings().service == defaults
