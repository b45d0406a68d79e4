"""`headwater sql`, as a process of its own: it starts Spark."""

from __future__ import annotations

import json
from pathlib import Path

import headwater
from tests.cli.running import start


def test_statements_run_and_print_tables_json_and_mistakes(tmp_path: Path) -> None:
    headwater.connect(folder=tmp_path / ".headwater").close()
    (tmp_path / "headwater.yaml").write_text("lake:\n  folder: .headwater\nspark:\n  master: local[1]\n")

    def sql(*arguments: str, text: str = "") -> tuple[int, str, str]:
        process = start("sql", *arguments, cwd=tmp_path, stdin=-1)
        out, err = process.communicate(text, timeout=200)
        return process.returncode, out, err

    assert sql("CREATE TABLE t AS SELECT id, 'v' AS v FROM range(3)")[0] == 0
    code, out, err = sql("-", "--limit", "2", text="SELECT id, v, NULL AS n FROM t ORDER BY id")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:3] == [" 0  v  NULL", " 1  v  NULL"]
    assert "--limit shows more" in out
    code, out, _ = sql("SELECT count(*) AS n FROM t", "--output", "json")
    assert json.loads(out) == {
        "columns": [{"name": "n", "type": "bigint"}],
        "rows": [{"n": 3}],
        "more": False,
    }
    code, out, err = sql("SELECT nothing FROM t")
    assert (code, out) == (1, "")
    assert "error[invalid_input]" in err
    assert "nothing" in err
