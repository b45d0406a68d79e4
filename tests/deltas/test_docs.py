"""What the guide shows is run."""

from __future__ import annotations

from pathlib import Path

from tests.test_docs import prints_what_it_says


def test_the_guide_to_datasets_prints_what_it_says(tmp_path: Path) -> None:
    prints_what_it_says("docs/deltas.md", tmp_path)
