"""A writer that kills itself in the middle of a commit. Run as a program: DSN, data path, step."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pyarrow as pa

from headwater.lake.lake import Lake
from headwater.lake.writing import commit as commit_module
from headwater.lake.writing.staging import Stager


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str) -> None:
    """Replace one function by one that dies before or after its work."""
    if step == "while storing":
        Stager._write = die  # type: ignore[method-assign]
    elif step == "stored":
        commit_module.prepare = die  # type: ignore[assignment]
    elif step == "prepared":
        commit_module.Commit._begin = die  # type: ignore[method-assign]
    elif step == "locked":
        commit_module.Commit._statements = die  # type: ignore[method-assign]
    elif step in ("written", "committed"):
        send = commit_module.send

        def cut(connection: Any, statements: Any) -> Any:
            listed = [s for s in statements if s.text != b"COMMIT"]
            send(connection, listed)
            if step == "committed":
                connection.execute("COMMIT")
            die()

        commit_module.send = cut
    else:
        raise SystemExit(f"no step {step}")


def main(dsn: str, step: str) -> None:
    lake = Lake.open(dsn, create=False)
    arm(step)
    with lake.transaction(operation_id="killed") as tx:
        tx.append("t", pa.table({"id": range(1000, 1050), "name": ["x"] * 50}))
        tx.append("t", [{"id": 2000, "name": "inlined"}])
        tx.delete("t", "id BETWEEN 20 AND 39")
        tx.create_table("made", {"id": "int64"})
        tx.append("made", pa.table({"id": range(20)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
