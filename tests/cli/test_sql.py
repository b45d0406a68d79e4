"""`headwater sql`, as a process of its own: it starts Spark."""

from __future__ import annotations

import json
from pathlib import Path

import headwater
from tests.cli.running import start


def test_statements_print_tables_and_mistakes_are_errors(tmp_path: Path) -> None:
    with headwater.connect(folder=tmp_path / ".headwater") as hw, hw.lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "v": "varchar"})
        tx.append("t", [{"id": number, "v": "v"} for number in range(3)])
    (tmp_path / "headwater.yaml").write_text("lake:\n  folder: .headwater\nspark:\n  master: local[1]\n")

    def sql(*arguments: str, text: str = "") -> tuple[int, str, str]:
        process = start("sql", *arguments, cwd=tmp_path, stdin=-1)
        out, err = process.communicate(text, timeout=200)
        return process.returncode, out, err

    code, out, err = sql("-", "--limit", "2", text="SELECT id, v, NULL AS n FROM t ORDER BY id")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:3] == [" 0  v  NULL", " 1  v  NULL"]
    assert "--limit shows more" in out
    code, out, err = sql("SELECT nothing FROM t", "--output", "json")
    assert (code, out) == (1, "")
    assert json.loads(err)["error"]["code"] == "invalid_input"
    assert "nothing" in json.loads(err)["error"]["message"]
