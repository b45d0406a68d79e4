"""The tools beside ducklake: the same form of envelopes, typed errors, and what each of them is about."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.engine import Headwater
from headwater.playbook.credentials.types import make_credential
from headwater.playbook.runners.worker import TaskWorker
from headwater.playbook.task import Task, TaskError, TaskFailed
from headwater.playbook.tools import MODULES, http, repeatable, tool
from headwater.playbook.tools.spark_sql import split
from tests.playbook.functions import traces
from tests.playbook.playing import play, resumed, written
from tests.spark.conftest import spark  # noqa: F401  (one session for all tests of the process)

FUNCTIONS = "tests.playbook.functions"


@pytest.fixture
def worker() -> Iterator[TaskWorker]:
    secrets = {
        "credential:token": make_credential("token", "generic", {"token": "hunter2-token"}),
        "credential:user": make_credential("user", "generic", {"username": "ada", "password": "pä:ss"}),
        "credential:header": make_credential("header", "generic", {"header": "X-Key", "value": "hunter2"}),
        "credential:shop": make_credential("shop", "postgres", {"host": "nowhere.invalid", "password": "pw"}),
    }
    made = TaskWorker("w1", lambda reference: secrets[reference].text())
    yield made
    made.close()


def run(worker: TaskWorker, kind: str, timeout: float | None = None, **fields: Any) -> Mapping[str, Any]:
    task = Task("run", "step", kind, fields, timeout=timeout)
    return tool(kind).run(task, worker)


def failed(worker: TaskWorker, kind: str, timeout: float | None = None, **fields: Any) -> TaskError:
    with pytest.raises(TaskFailed) as raised:
        run(worker, kind, timeout, **fields)
    return raised.value.error


def test_every_kind_is_there_and_says_where_it_runs() -> None:
    where = {kind: tool(kind).where for kind in MODULES}
    assert {kind for kind, place in where.items() if place == "driver"} == {"spark", "refresh", "playbook"}
    assert all(tool(kind).kind == kind for kind in MODULES)
    assert not any(repeatable(kind) for kind in ("python", "http", "postgres", "duckdb", "spark"))


# -- postgres -----------------------------------------------------------------------------------------


def test_postgres_gives_rows_and_counts_exactly(worker: TaskWorker, new_database: str) -> None:
    found = run(
        worker,
        "postgres",
        connection=new_database,
        commands=[
            "CREATE TABLE t (id int PRIMARY KEY, v numeric(38, 2))",
            "INSERT INTO t VALUES (1, 1.10), (2, 12345678901234567890.12); UPDATE t SET v = v WHERE id = 2",
            "SELECT id, id, v FROM t ORDER BY id",
            "INSERT INTO t VALUES (3, NULL) RETURNING *",
            """SELECT timestamptz '2025-01-06 10:00+02' AS tz, timestamp '0044-03-15 12:00 BC' AS bc,
               date 'infinity' AS never, interval '1 year 2 days' AS i, time '10:00:00.5' AS t,
               '\\x00ff'::bytea AS b, 'NaN'::float8 AS n, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS u,
               '{"k": [1, null]}'::jsonb AS j, ARRAY[1.50, NULL] AS a, int4range(1, 5) AS r,
               '127.0.0.1'::inet AS ip, 170141183460469231731687303715884105727 AS big, true AS yes""",
            "DROP TABLE IF EXISTS nothing",
            "",
        ],
    )
    assert found["status"] == "ok"
    commands = found["result"]["commands"]
    assert found["result"]["command_count"] == 7
    assert commands[0] == {"command_index": 0, "affected_rows": 0, "status": "executed"}
    assert commands[1] == {"command_index": 1, "affected_rows": 1, "status": "executed"}
    assert commands[2] == {
        "command_index": 2,
        "row_count": 2,
        "columns": ["id", "id_1", "v"],
        "rows": [{"id": 1, "id_1": 1, "v": "1.10"}, {"id": 2, "id_1": 2, "v": "12345678901234567890.12"}],
    }
    assert commands[3]["rows"] == [{"id": 3, "v": None}]
    assert commands[4]["rows"] == [
        {
            "tz": "2025-01-06T08:00:00+00:00",
            "bc": "0044-03-15T12:00:00 BC",
            "never": "infinity",
            "i": "1 year 2 days",
            "t": "10:00:00.5",
            "b": "AP8=",
            "n": "NaN",
            "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "j": {"k": [1, None]},
            "a": ["1.50", None],
            "r": "[1, 5)",
            "ip": "127.0.0.1",
            "big": "170141183460469231731687303715884105727",
            "yes": True,
        }
    ]
    assert [c.get("affected_rows") for c in commands[5:]] == [0, 0]
    json.dumps(found)


def test_a_postgres_step_is_one_transaction_and_its_errors_are_typed(
    worker: TaskWorker, new_database: str
) -> None:
    run(worker, "postgres", connection=new_database, command="CREATE TABLE t (id int PRIMARY KEY)")
    error = failed(
        worker, "postgres", connection=new_database, commands=["INSERT INTO t VALUES (1)", "SELECT x FROM t"]
    )
    assert (error.kind, error.code, error.command_index, error.position) == ("sql", "42703", 1, 7)
    assert error.message == 'column "x" does not exist'
    assert not error.retryable
    error = failed(
        worker, "postgres", connection=new_database, command="INSERT INTO t VALUES (1), (1); SELECT 1"
    )
    assert (error.kind, error.code) == ("constraint", "23505")
    empty = run(worker, "postgres", connection=new_database, command="SELECT 1 AS a; SELECT count(*) FROM t")
    assert [entry["command_index"] for entry in empty["result"]["commands"]] == [0, 1]
    assert empty["result"]["commands"][1]["rows"] == [{"count": 0}]
    slow = failed(worker, "postgres", 0.2, connection=new_database, command="SELECT pg_sleep(30)")
    assert (slow.kind, slow.retryable) == ("timeout", True)
    pauses = ["SELECT pg_sleep(0.4)"] * 5  # each of them has time, all of them have not
    assert failed(worker, "postgres", 1, connection=new_database, commands=pauses).kind == "timeout"
    assert run(worker, "postgres", connection=new_database, command="SELECT pg_sleep(0.1)")["status"] == "ok"


def test_a_postgres_server_that_is_not_there_may_come_back_and_one_that_left_is_noticed(
    worker: TaskWorker, new_database: str
) -> None:
    error = failed(worker, "postgres", 2, auth="credential:shop", command="SELECT 1")
    assert (error.kind, error.retryable) == ("connection", True)
    error = failed(worker, "postgres", connection="host=x password='hunter2", command="SELECT 1")
    assert (error.kind, "hunter2" in error.message) == ("connection", False)
    one = "SELECT pg_backend_pid() AS pid"
    first = run(worker, "postgres", connection=new_database, command=one)
    assert run(worker, "postgres", connection=new_database, command=one) == first, "not kept"
    pid = first["result"]["commands"][0]["rows"][0]["pid"]
    with psycopg.connect(new_database, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    assert run(worker, "postgres", connection=new_database, command=one) != first


# -- duckdb -------------------------------------------------------------------------------------------


def test_workers_take_turns_on_a_duckdb_file(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        - step: create
          tool: duckdb
          database_path: "{tmp_path}/my.duckdb"
          command: CREATE TABLE t (id INTEGER, v DECIMAL(10, 2))
          next: [{{step: fill}}]
        - step: fill
          loop: {{collection: "{{{{ range(12) }}}}", element: n, mode: async}}
          tool: duckdb
          database_path: "{tmp_path}/my.duckdb"
          command: INSERT INTO t VALUES ({{{{ n }}}}, 1.10)
          next: [{{step: look}}]
        - step: look
          tool: duckdb
          database_path: "{tmp_path}/my.duckdb"
          commands: ["SELECT count(*) AS n FROM t; SELECT sum(v) AS s, max(id) AS m FROM t", "SHOW TABLES"]
        """,
    )
    report, _ = play(hw, path)
    assert (report.status, report.error) == ("done", None)
    envelope = report.step("look").envelope
    assert envelope is not None
    assert envelope["result"]["commands"][0]["rows"] == [{"s": "13.20", "m": 11}]
    assert envelope["result"]["commands"][1]["rows"] == [{"name": "t"}]
    item = report.step("fill").items[0].envelope
    assert item is not None
    assert item["result"]["commands"] == [{"command_index": 0, "affected_rows": 1, "status": "executed"}]


def test_a_duckdb_step_is_one_transaction_and_waits_for_other_programs(
    worker: TaskWorker, tmp_path: Path
) -> None:
    path = str(tmp_path / "new" / "my.duckdb")
    made = run(
        worker, "duckdb", database_path=path, command="CREATE TABLE t AS SELECT 1 AS id; SELECT 2 AS b"
    )
    assert [entry.get("affected_rows", entry.get("rows")) for entry in made["result"]["commands"]] == [
        1,
        [{"b": 2}],
    ]
    error = failed(worker, "duckdb", database_path=path, commands=["DELETE FROM t", "SELECT nothing"])
    assert (error.kind, error.code, error.command_index) == ("sql", "BinderException", 1)
    assert error.position == 7
    assert run(worker, "duckdb", database_path=path, command="FROM t")["result"]["commands"][0]["rows"]
    # DuckDB lets one process at a time have the file.
    code = f"import duckdb, time; c = duckdb.connect({path!r}); print('open', flush=True); time.sleep(2)"
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    other.stdout.readline()
    error = failed(worker, "duckdb", 0.2, database_path=path, command="SELECT 1")
    assert error.kind == "timeout"
    began = time.monotonic()
    assert run(worker, "duckdb", database_path=path, command="SELECT 1")["status"] == "ok"
    assert time.monotonic() - began > 0.1
    other.communicate()
    error = failed(
        worker, "duckdb", 0.3, command="SELECT count(*) FROM range(10_000_000_000) a, range(1000) b"
    )
    assert error.kind == "timeout"
    error = failed(worker, "duckdb", database_path=str(tmp_path), command="SELECT 1")
    assert error.kind == "io"
    assert duckdb.__version__


# -- http ---------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    seen: list[tuple[str, str, dict[str, str], bytes]] = []  # noqa: RUF012  (of one test at a time)

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        self.seen.append((self.command, self.path, dict(self.headers), body))
        status, kind, content = 200, "application/json", b'{"n": 1.5, "list": [1, null]}'
        if self.path.startswith("/status/"):
            status, content = int(self.path.partition("?")[0][8:]), b'{"why": "because"}'
        elif self.path == "/text":
            kind, content = "text/plain; charset=latin-1", "hällo".encode("latin-1")
        elif self.path == "/binary":
            kind, content = "application/octet-stream", b"\xff\x00"
        elif self.path == "/slow":
            time.sleep(2)
        elif self.path == "/large":
            content = b"x" * 5000
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Set-Cookie", "session=secret")
        if status in (301, 302):
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # who asked did not wait
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    _Handler.seen.clear()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()


def test_http_sends_and_gives_what_came(worker: TaskWorker, server: str) -> None:
    got = run(worker, "http", url=f"{server}/a", params={"q": "x y"}, headers={"X-One": 1})
    assert got["result"]["status_code"] == 200
    assert got["result"]["body"] == {"n": 1.5, "list": [1, None]}
    assert "set-cookie" not in got["result"]["headers"]
    run(worker, "http", url=server, method="POST", json={"a": [1]}, auth="credential:token")
    run(worker, "http", url=server, method="PUT", data="plain", auth="credential:user")
    run(worker, "http", url=server, method="POST", data={"a": 1}, auth="credential:header")
    method, path, headers, _ = _Handler.seen[0]
    assert (method, path, headers["X-One"]) == ("GET", "/a?q=x+y", "1")
    assert _Handler.seen[1][2]["Authorization"] == "Bearer hunter2-token"
    assert json.loads(_Handler.seen[1][3]) == {"a": [1]}
    assert _Handler.seen[2][2]["Authorization"].startswith("Basic ")
    assert _Handler.seen[2][3] == b"plain"
    assert (_Handler.seen[3][2]["X-Key"], _Handler.seen[3][3]) == ("hunter2", b"a=1")
    assert run(worker, "http", url=f"{server}/text")["result"]["body"] == "hällo"
    assert run(worker, "http", url=f"{server}/binary")["result"]["body"] == "/wA="


def test_http_errors_are_typed_and_say_no_secret(
    worker: TaskWorker, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = failed(worker, "http", url=f"{server}/status/503?key=hunter2", auth="credential:token")
    assert (error.kind, error.code, error.retryable) == ("http", "503", True)
    assert "because" in error.message
    assert "hunter2" not in error.message
    assert failed(worker, "http", url=f"{server}/status/404").retryable is False
    # A credential is meant for one address: nobody is followed elsewhere with it.
    assert failed(worker, "http", url=f"{server}/status/302").code == "302"
    assert "/elsewhere" not in [path for _, path, _, _ in _Handler.seen]
    assert run(worker, "http", url=f"{server}/status/404", expected_status=[404, 200])["status"] == "ok"
    assert failed(worker, "http", url=server, expected_status=201).code == "200"
    slow = failed(worker, "http", 0.2, url=f"{server}/slow")
    assert (slow.kind, slow.retryable) == ("timeout", True)
    # What a request that changes something did, nobody knows.
    assert failed(worker, "http", 0.2, url=f"{server}/slow", method="POST").retryable is False
    refused = failed(worker, "http", url="http://127.0.0.1:9/")
    assert (refused.kind, refused.retryable) == ("connection", True)
    assert failed(worker, "http", url="nonsense").kind in ("http", "connection")
    assert failed(worker, "http", url=server, auth="credential:shop").kind == "credential"
    monkeypatch.setattr(http, "MAX_BODY", 1000)
    assert failed(worker, "http", url=f"{server}/large").code == "too_large"


# -- python -------------------------------------------------------------------------------------------


def test_python_results_are_json_and_what_has_none_is_an_error(
    worker: TaskWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    code = """
from datetime import datetime, timezone
from decimal import Decimal
print("hello")
result = {"d": Decimal("1.10"), "at": datetime(2025, 1, 6, tzinfo=timezone.utc), "s": (1, 2), "in": args}
"""
    found = run(worker, "python", code=code, args={"x": [1]})
    assert found == {
        "status": "ok",
        "result": {"d": "1.10", "at": "2025-01-06T00:00:00+00:00", "s": [1, 2], "in": {"x": [1]}},
    }
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "hello\n")
    assert run(worker, "python", callable=f"{FUNCTIONS}:give", args={"value": 7})["result"] == 7
    assert failed(worker, "python", callable=f"{FUNCTIONS}:give_object").code == "result"
    for name, text in (
        ("nowhere:f", "No module named 'nowhere'"),
        (f"{FUNCTIONS}:missing", "has no function 'missing'"),
        ("no colon", "does not name a function"),
        (f"{FUNCTIONS}:Path.home", ""),
    ):
        if text:
            assert text in failed(worker, "python", callable=name).message
    assert failed(worker, "python", code="import sys; sys.exit(3)").message == "The code ended with 3."
    assert failed(worker, "python", code="def broken(").code == "SyntaxError"
    lost = failed(worker, "python", code="raise ConnectionResetError('gone')")
    assert (lost.code, lost.retryable) == ("ConnectionResetError", True)


# -- tools in the process of the flow -----------------------------------------------------------------


@pytest.fixture
def spark_hw(new_database: str, tmp_path: Path, spark: SparkSession) -> Iterator[Headwater]:  # noqa: F811
    with headwater.connect(new_database, data_path=tmp_path / "data", spark=spark) as opened:
        with opened.lake.transaction() as tx:
            tx.create_schema("sales")
            tx.create_table("sales.orders", {"region": "varchar", "amount": "decimal(10,2)"})
            tx.append(
                "sales.orders",
                [{"region": r, "amount": a} for r, a in (("n", Decimal("1.10")), ("s", Decimal(2)))],
            )
        yield opened


def test_a_refresh_that_takes_too_long_is_stopped(spark_hw: Headwater, tmp_path: Path) -> None:
    spark_hw.sql("CREATE TABLE sales.numbers AS SELECT id FROM range(10)")
    pairs = "SELECT sum(a.id * b.id % 7) AS n FROM sales.numbers a JOIN sales.numbers b ON a.id < b.id + 1"
    spark_hw.create_stream_table("sales.pairs", pairs, refresh_mode="full")
    spark_hw.sql("INSERT INTO sales.numbers SELECT id FROM range(300000)")
    path = written(
        tmp_path,
        """
        - step: long
          tool: refresh
          stream_tables: [sales.pairs]
          timeout: 3
        """,
    )
    began = time.monotonic()
    report, _ = play(spark_hw, path)
    envelope = report.step("long").envelope
    assert envelope is not None
    assert (envelope["error"]["kind"], envelope["error"]["message"]) == ("timeout", "Not done within 3 s.")
    assert time.monotonic() - began < 60


def test_spark_and_refresh_work_on_the_lake(spark_hw: Headwater, tmp_path: Path) -> None:
    spark_hw.create_stream_table("sales.totals", "SELECT sum(amount) AS total FROM sales.orders")
    path = written(
        tmp_path,
        f"""
        workload: {{region: "n'; DROP TABLE sales.orders; --"}}
        workflow:
          - step: write
            tool: spark
            commands:
              - |
                INSERT INTO sales.orders VALUES ({{{{ region }}}}, 3.00);
                INSERT INTO sales.orders VALUES ('w', 1)
              - SELECT region, amount FROM sales.orders ORDER BY amount, region
            next: [{{step: fresh}}]
          - step: fresh
            tool: refresh
            stream_tables: [sales.totals]
            vars: {{action: "{{{{ result.refreshes[0].action }}}}"}}
            next: [{{step: called}}]
          - step: called
            tool: spark
            callable: {FUNCTIONS}:count_rows
            args: {{table: sales.orders}}
            next: [{{step: framed}}]
          - step: framed
            loop: {{collection: [sales.orders, sales.totals], element: name, mode: async}}
            tool: spark
            callable: {FUNCTIONS}:lake_frame
            args: {{name: "{{{{ 'sales.orders' if loop.first else name }}}}"}}
            next:
              - when: "{{{{ event.name == 'step.failed' }}}}"
                then: [{{step: bad}}]
          - step: bad
            tool: spark
            sql: SELECT nothing FROM sales.orders
        """,
    )
    report, _ = play(spark_hw, path)
    write = report.step("write").envelope
    assert write is not None, report.error
    assert write["result"]["commands"][0] == {"command_index": 0, "affected_rows": 1, "status": "executed"}
    assert write["result"]["commands"][1]["row_count"] == 4
    assert write["result"]["commands"][1]["rows"][-1] == {
        "region": "n'; DROP TABLE sales.orders; --",
        "amount": "3.00",
    }
    assert report.vars == {"action": "INCREMENTAL"}
    called = report.step("called").envelope
    assert called is not None
    assert (called["result"]["table"], called["result"]["two"]) == ("sales.orders", 2)
    first = report.step("framed").items[0].envelope
    assert first is not None
    assert {"region": "w", "amount": "1.00"} in first["result"]
    bad = report.step("bad").record.error
    assert bad is not None
    assert (bad["kind"], bad["command_index"]) == ("sql", 0)
    assert "nothing" in bad["message"]


def test_in_spark_s_executors_the_same_comes_out(spark_hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        runner: spark
        workload: {{connection: "{spark_hw.lake.dsn}"}}
        workflow:
          - step: create
            tool: ducklake
            catalog_connection: "{{{{ connection }}}}"
            catalog_name: analytics
            data_path: "{tmp_path}/files"
            command: CREATE TABLE t (id INTEGER)
            next: load
          - step: load
            loop: {{collection: [1, 2, 3, 4], element: id, mode: async}}
            tool: ducklake
            auth: {{credential: shop}}
            catalog_name: analytics
            data_path: "{tmp_path}/files"
            command: INSERT INTO t VALUES ({{{{ id }}}})
            next: look
          - step: look
            tool: ducklake
            auth: shop
            catalog_name: analytics
            data_path: "{tmp_path}/files"
            command: SELECT list(id ORDER BY id) AS ids FROM t
            vars: {{ids: "{{{{ result.data.command_0.rows[0].ids }}}}"}}
        """,
    )
    fields = psycopg.conninfo.conninfo_to_dict(spark_hw.lake.dsn)
    spark_hw.playbooks.credentials().add(make_credential("shop", "postgres", fields))
    report, _ = play(spark_hw, path)
    assert (report.status, report.error) == ("done", None)
    assert (report.run.runner, report.vars) == ("spark", {"ids": [1, 2, 3, 4]})
    item = report.step("load").items[3].envelope
    assert item is not None
    assert item["result"]["commands"] == [{"command_index": 0, "affected_rows": 1, "status": "executed"}]


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1", ["SELECT 1"]),
        (" ; SELECT 1 ;; ", ["SELECT 1"]),
        (
            "SELECT ';', \";\", `a;b` /* ; */; SELECT 2 -- ;",
            ["SELECT ';', \";\", `a;b` /* ; */", "SELECT 2 -- ;"],
        ),
    ],
)
def test_statements_of_spark_end_at_semicolons_outside_of_quotes(text: str, statements: list[str]) -> None:
    assert split(text) == statements


def test_a_playbook_calls_another_which_goes_on_where_it_was(hw: Headwater, tmp_path: Path) -> None:
    written(
        tmp_path,
        f"""
        metadata: {{name: inner}}
        workload: {{name: nobody, times: 0}}
        workflow:
          - step: once
            tool: python
            callable: {FUNCTIONS}:note
            args: {{folder: "{tmp_path}", name: "{{{{ name }}}}"}}
            vars: {{greeting: "hello {{{{ result }}}}"}}
            next: [{{step: twice}}]
          - step: twice
            tool: python
            callable: {FUNCTIONS}:fails_until
            args: {{folder: "{tmp_path}", name: "{{{{ name }}}}-2", times: "{{{{ times }}}}"}}
        """,
        "inner.yaml",
    )
    path = written(
        tmp_path,
        """
        - step: call
          tool: playbook
          path: inner.yaml
          workload: {name: ada, times: 1}
          vars: {said: "{{ result.vars.greeting }}", last: "{{ result.result }}"}
        """,
    )
    report, _ = play(hw, path)
    assert report.status == "failed"
    assert report.error is not None
    assert "Playbook inner: Step 'twice' failed: ConnectionError: attempt 1" in report.error["message"]
    again = resumed(hw, path)
    assert again.vars == {"said": "hello ada", "last": 2}
    assert traces(tmp_path) == {"ada": 1, "ada-2": 2}
    runs = hw.playbooks.store.runs(called=True)
    assert [(run.name, run.parent) for run in runs] == [("inner", report.id), ("book", None)]
    assert [run.id for run in hw.playbooks.runs()] == [report.id]


def test_playbooks_that_call_each_other_in_a_circle_are_refused(hw: Headwater, tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        written(tmp_path, f"- {{step: call, tool: playbook, path: ./{other}.yaml}}", f"{name}.yaml")
    report, _ = play(hw, tmp_path / "a.yaml")
    assert report.error is not None
    assert "in a circle: a.yaml → b.yaml → a.yaml" in report.error["message"]
    written(tmp_path, "- {step: call, tool: playbook, path: nowhere.yaml}", "c.yaml")
    report, _ = play(hw, tmp_path / "c.yaml")
    assert report.error is not None
    assert "nowhere.yaml cannot be read" in report.error["message"]
