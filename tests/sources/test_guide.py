"""The guide to sources prints what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.test_docs import blocks


def test_the_guide_to_sources_prints_what_it_says(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", blocks("docs/sources.md", "python")[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == blocks("docs/sources.md", "text")[0]
    assert run.stderr == ""
