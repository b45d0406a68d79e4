"""A compaction that kills itself on the way. Run as a program: DSN, step."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from headwater.deltas import verifying
from headwater.deltas.dataset import DeltaDataset
from headwater.deltas.folding import Fold
from headwater.lake.catalog import table_name
from headwater.lake.lake import Lake
from headwater.lake.writing import commit as commit_module
from headwater.lake.writing.staging import Stager

STEPS = ["while storing", "stored", "verified", "locked", "written", "noted"]
#: Those that every run of the tests goes through.
QUICK = ["verified", "noted"]


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str) -> None:
    """Replace one function by one that dies."""
    if step == "while storing":
        Stager._write = die  # type: ignore[method-assign]
    elif step == "stored":
        Fold.apply = die  # type: ignore[method-assign]
    elif step == "verified":
        verify = verifying.verify
        verifying.verify = lambda *args: (verify(*args), die())  # type: ignore[assignment]
    elif step == "locked":
        commit_module.Commit._statements = die  # type: ignore[method-assign]
    elif step == "written":
        commit_module.Commit._join = die  # type: ignore[method-assign]
    else:
        join = commit_module.Commit._join
        commit_module.Commit._join = lambda *args: (join(*args), die())  # type: ignore[assignment,method-assign]


def main(dsn: str, step: str) -> None:
    lake = Lake.open(dsn, create=False)
    arm(step)
    DeltaDataset(lake, die, table_name("crm.people")).compact(operation_id="killed")


if __name__ == "__main__":
    main(*sys.argv[1:])
