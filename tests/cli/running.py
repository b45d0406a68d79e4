"""Running the command line, in this process or in one of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.cli.main import main


@dataclass(frozen=True)
class Ran:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


def run(*arguments: str) -> Ran:
    """Run a command in this process, with its output going to no terminal."""
    out, err = io.StringIO(), io.StringIO()
    hook = sys.excepthook
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main(arguments)
    except SystemExit as end:
        return Ran(int(end.code or 0), out.getvalue(), err.getvalue())
    finally:
        sys.excepthook = hook
    raise AssertionError("main() returned")


def start(*arguments: str, cwd: Path | None = None, **options: Any) -> subprocess.Popen[str]:
    """Start a command as a process of its own."""
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("headwater")), *arguments],
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=options.pop("stderr", subprocess.PIPE),
        text=True,
        cwd=cwd,
        env={**os.environ, **options.pop("env", {})},
        **options,
    )
