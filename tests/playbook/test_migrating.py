"""Playbooks on database files become playbooks on lakes, and their tables go along."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from headwater.errors import PlaybookError
from headwater.lake.lake import Lake
from headwater.playbook.ducklake.keys import key_of
from headwater.playbook.language.reading import load_playbook
from headwater.playbook.migration.copying import copy, describe
from headwater.playbook.migration.migrating import Destination, Migration, plan_migration
from tests.support import duck

EXAMPLES = Path(__file__).parents[2] / "examples" / "playbooks"
AUTH = Destination(auth="warehouse")


def migrated(folder: Path, text: str, destination: Destination = AUTH) -> Migration:
    file = folder / "p.yaml"
    file.write_text(text)
    return plan_migration(file, destination)


def test_the_example_becomes_the_other_example() -> None:
    given = Destination(catalog_connection="{{ catalog_connection }}", data_path="{{ data_path }}")
    plan = plan_migration(EXAMPLES / "migration_before.yaml", given)
    after = load_playbook(EXAMPLES / "migration_after.yaml").steps
    assert f"catalog_name: {after[0].fields['catalog_name']!r}".replace("'", '"') in plan.after
    assert [(one.step, one.database, one.catalog_name) for one in plan.steps] == [
        ("process_data", "data/mydb.duckdb", "mydb")
    ]


def test_only_what_must_change_changes(tmp_path: Path) -> None:
    plan = migrated(
        tmp_path,
        "# first\n"
        "- step: a   # the step\n"
        "  tool: duckdb  # old\n"
        "\n"
        '  database_path: "/data/my-db.duckdb"   # where\n'
        "  command: |\n"
        "    SELECT 'tool: duckdb'   -- database_path: x\n"
        "- step: b\n"
        "  tool: http\n"
        "  url:    http://x\n",
    )
    assert plan.after == (
        "# first\n"
        "- step: a   # the step\n"
        "  tool: ducklake  # old\n"
        "\n"
        '  auth: "{{ warehouse }}"\n'
        '  catalog_name: "my_db"\n'
        '  data_path: "/data/ducklake"   # where\n'
        "  command: |\n"
        "    SELECT 'tool: duckdb'   -- database_path: x\n"
        "- step: b\n"
        "  tool: http\n"
        "  url:    http://x\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "- {step: a, tool: duckdb, database_path: x/d.db, command: SELECT 1}\n",
        "- {step: a,\n   tool: duckdb,\n   database_path: x/d.db,\n   command: SELECT 1}\n",
        "- step: a\n  tool: {kind: duckdb, database_path: 'x/d.db', command: SELECT 1}\n",
        "- step: a\n  tool:\n    kind: 'duckdb'\n    database_path: x/d.db\n    command: SELECT 1\n",
        "- tool: duckdb\n  step: a\n  command: SELECT 1\n  database_path: x/d.db\n",
        "- database_path: x/d.db\n  tool: duckdb\n  step: a\n  command: SELECT 1\n",
        "workload: {db: x/d.db}\nworkflow:\n- step: a\n  tool: duckdb\n  database_path: '{{ db }}'\n"
        "  command: SELECT 1\n",
        "- &one\n  step: a\n  tool: duckdb\n  database_path: x/d.db\n  command: SELECT 1\n"
        "- <<: *one\n  step: b\n",
        "- step: a\n  tool: &t duckdb\n  database_path: &d x/d.db\n  command: SELECT 1\n"
        "- step: b\n  tool: *t\n  database_path: *d\n  command: SELECT 2\n",
        "- step: a\r\n  tool: duckdb\r\n  database_path: x/d.db\r\n  command: SELECT 1\r\n",
    ],
)
def test_every_way_to_write_a_step(tmp_path: Path, text: str) -> None:
    plan = migrated(tmp_path, text)
    (tmp_path / "new.yaml").write_text(plan.after, newline="")
    for step in load_playbook(tmp_path / "new.yaml").steps:
        fields = {key: value for key, value in step.fields.items() if not key.startswith("command")}
        assert step.tool == "ducklake"
        assert fields == {"auth": "{{ warehouse }}", "catalog_name": "d", "data_path": "x/ducklake"}
    assert plan_migration(tmp_path / "new.yaml", AUTH).steps == ()


def test_what_stays_as_it_is_is_told(tmp_path: Path) -> None:
    plan = migrated(
        tmp_path,
        "- step: memory\n  tool: duckdb\n  command: SELECT 1\n"
        "- step: late\n  tool: duckdb\n  database_path: '{{ run.id }}.db'\n  command: SELECT 1\n"
        "- step: odd\n  tool: duckdb\n  database_path: x.db\n"
        "  command: |\n    CREATE TABLE t (a INTEGER);\n    CREATE INDEX i ON t(a);\n",
    )
    assert [one.step for one in plan.steps] == ["odd"]
    assert ["works in memory" in plan.notes[0], "known only when it runs" in plan.notes[1]] == [True, True]
    assert plan.notes[2].endswith("p.yaml:13:5: step `odd` has CREATE INDEX, which DuckLake does not have.")


def test_files_of_the_same_name_become_different_lakes(tmp_path: Path) -> None:
    step = "- step: {0}\n  tool: duckdb\n  database_path: {1}\n  command: SELECT 1\n"
    text = "".join(step.format(*one) for one in [("a", "x/d.db"), ("b", "y/d.db"), ("c", "x/d.db")])
    assert [one.catalog_name for one in migrated(tmp_path, text).steps] == ["d", "y_d", "d"]


# --- tables ------------------------------------------------------------------------------------------

TABLES = """
    CREATE SCHEMA s;
    CREATE TYPE mood AS ENUM ('good', 'bad');
    CREATE SEQUENCE numbers;
    CREATE MACRO twice(a) AS a * 2;
    CREATE TABLE t (
        id INTEGER PRIMARY KEY DEFAULT nextval('numbers'), name VARCHAR NOT NULL DEFAULT 'x', m mood,
        price DECIMAL(10, 2) CHECK (price > 0), three INTEGER[3], big HUGEINT, ts TIMESTAMPTZ, iv INTERVAL,
        u UUID, st STRUCT(a INTEGER, b VARCHAR[]), mp MAP(VARCHAR, INTEGER), bits BIT, j JSON,
        un UNION(a INTEGER, b VARCHAR), flag BOOLEAN DEFAULT true, data BLOB, tz TIMETZ, ns TIMESTAMP_NS,
        double_id INTEGER GENERATED ALWAYS AS (id * 2));
    INSERT INTO t (id, name, m, price, three, big, ts, iv, u, st, mp, bits, j, un, data, tz, ns) VALUES
        (1, 'it''s', 'good', 1.50, [1, 2, 3], 123456789012345678901234567890, '2025-01-06 10:00:00+00',
         INTERVAL '1 month 2 days', '00000000-0000-0000-0000-000000000001', {'a': 1, 'b': ['x', NULL]},
         MAP {'k': 1}, '101', '{"a": 1}', 'text'::VARCHAR, '\\x00\\xFF'::BLOB, '12:00:00+00',
         '2025-01-06 10:00:00.123456789'),
        (2, 'nothing', NULL, NULL, NULL, NULL, NULL, NULL, NULL,
         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    COMMENT ON TABLE t IS 'of the old days';
    CREATE TABLE s."odd name" (a INTEGER, b INTEGER, UNIQUE (a, b));
    INSERT INTO s."odd name" SELECT i, i % 7 FROM range(60_000) r(i);
    CREATE TABLE empty (a INTEGER);
    CREATE VIEW below AS SELECT name FROM mydb.main.t WHERE name <> 'as';
    CREATE VIEW above AS SELECT count(*) AS n FROM below;
    CREATE VIEW s.renamed (x, y) AS SELECT a, b FROM s."odd name";
    CREATE VIEW lost AS SELECT twice(a) FROM s."odd name";
    CREATE INDEX i ON t (name);
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "mydb.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(TABLES)
    return file


def test_tables_keys_and_views_are_copied_once_and_what_is_lost_is_named(lake: Lake, database: Path) -> None:
    found = describe(database, "mydb")
    done = copy(found, lake)
    assert {(one.name, one.rows, one.action) for one in done} == {
        ("main.t", 2, "copied"),
        ('s."odd name"', 60_000, "copied"),
        ("main.empty", 0, "copied"),
        ("main.below", None, "copied"),
        ("main.above", None, "copied"),
        ("s.renamed", None, "copied"),
    }
    assert (key_of(lake, "t"), key_of(lake, 's."odd name"')) == (("id",), ("a", "b"))
    assert lake.table("t").tags["comment"] == "of the old days"
    notes = "\n".join(found.notes)
    for expected in (
        "ENUM('good', 'bad') becomes VARCHAR",
        "INTEGER[3] becomes INTEGER[]",
        "BIT becomes VARCHAR",
        "UNION(a INTEGER, b VARCHAR) becomes VARCHAR",
        "CHECK((price > 0)) is not kept",
        "the default nextval('numbers') is not kept",
        "generated columns",
        "index main.i",
        "sequence main.numbers",
        "macro main.twice",
        "view main.lost is not copied",
        "view main.below names the catalog mydb",
    ):
        assert expected in notes

    select = "SELECT * REPLACE (m::VARCHAR AS m, three::INTEGER[] AS three, bits::VARCHAR AS bits, "
    select += "un::VARCHAR AS un, j::VARCHAR AS j) FROM t ORDER BY id"
    with duckdb.connect(str(database), read_only=True) as old, duck(lake.dsn) as new:
        old.execute("SET TimeZone = 'UTC'")
        assert new.execute(select).fetchall() == old.execute(select).fetchall()
        assert new.execute('SELECT sum(a), sum(b), count(*) FROM s."odd name"').fetchall() == [
            (1_799_970_000, 179_994, 60_000)
        ]
        assert new.execute("SELECT max(x) FROM s.renamed").fetchall() == [(59_999,)]
        new.execute("INSERT INTO t (id) VALUES (3)")
        assert new.execute("SELECT name, flag FROM t WHERE id = 3").fetchall() == [("x", True)]

    before = lake.snapshot().id
    assert {one.action for one in copy(describe(database, "mydb"), lake)} == {"there"}
    assert lake.snapshot().id == before


def test_a_table_that_came_from_elsewhere_is_not_touched(lake: Lake, database: Path) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"mine": "int32"})
    with pytest.raises(PlaybookError, match=r"a table main\.t already.*nothing was copied"):
        copy(describe(database, "mydb"), lake)
    assert [table.name.name for table in lake.state().tables.values()] == ["t"]


def test_a_file_that_is_no_database_or_is_in_use_is_told(tmp_path: Path, database: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_text("no database at all" * 1000)
    with pytest.raises(PlaybookError, match="cannot be opened"):
        describe(broken, "broken")
