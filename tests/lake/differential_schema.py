"""Differential cases about what exists: schemas, tables, tags, views, options."""

from __future__ import annotations

from headwater.lake.writing.columns import SqlExpression
from tests.lake.differential import Case, create, delete, insert, option, step, together, update

#: Every type that DuckDB's extension accepts for a column.
TYPES = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "int128": "HUGEINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "uint128": "UHUGEINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "small decimal": "DECIMAL(4,1)",
    "plain decimal": "DECIMAL",
    "large decimal": "DECIMAL(38,10)",
    "date": "DATE",
    "time": "TIME",
    "timetz": "TIMETZ",
    "timestamp": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP_S",
    "timestamp_ms": "TIMESTAMP_MS",
    "timestamp_ns": "TIMESTAMP_NS",
    "timestamptz": "TIMESTAMPTZ",
    "interval": "INTERVAL",
    "varchar": "VARCHAR",
    "json": "JSON",
    "blob": "BLOB",
    "uuid": "UUID",
    "list": "INTEGER[]",
    "list of lists": "VARCHAR[][]",
    "struct": 'STRUCT("x" INTEGER, "y z" VARCHAR)',
    "map": "MAP(VARCHAR, DECIMAL(9,2))",
    "deep": 'STRUCT("a" STRUCT("b" MAP(INTEGER, STRUCT("c" DATE)[])))[]',
}

_DEFAULTS = {
    "i": ("INTEGER", "42", 42),
    "big": ("HUGEINT", "170141183460469231731687303715884105727", "170141183460469231731687303715884105727"),
    "f": ("DOUBLE", "1.5", 1.5),
    "d": ("DECIMAL(10,2)", "3.14", "3.14"),
    "t": ("VARCHAR", "'it''s'", "it's"),
    "e": ("VARCHAR", "''", ""),
    "b": ("BOOLEAN", "'true'", True),
    "day": ("DATE", "'2020-02-29'", "2020-02-29"),
    "moment": ("TIMESTAMP", "'2020-02-29 12:00:00'", "2020-02-29 12:00:00"),
    "n": ("INTEGER", "NULL", None),
    "now": ("TIMESTAMPTZ", "now()", SqlExpression("now()")),
    "dice": ("DOUBLE", "random()", SqlExpression("random()")),
}

TABLES = [
    Case("a table of every type", [create("t", TYPES)]),
    Case(
        "types that are never inlined",
        [create("v", {"a": "INTEGER", "b": "VARIANT"}), create("g", {"a": "INTEGER", "b": "GEOMETRY"})],
    ),
    Case(
        "names that are no folder names",
        [
            step('CREATE SCHEMA "we ird"', lambda tx: tx.create_schema("we ird")),
            step(
                'CREATE TABLE "we ird"."odd ""na.me" ("c.d" INTEGER, "größe" VARCHAR, "select" DATE)',
                lambda tx: tx.create_table(
                    ("we ird", 'odd "na.me'), {"c.d": "int32", "größe": "varchar", "select": "date"}
                ),
            ),
            step(
                """INSERT INTO "we ird"."odd ""na.me" SELECT range, 'x', NULL FROM range(20)""",
                lambda tx: tx.append(("we ird", 'odd "na.me'), [{"c.d": i, "größe": "x"} for i in range(20)]),
            ),
            step(
                f'CREATE TABLE "{"n" * 200}" (a INTEGER)',
                lambda tx: tx.create_table("n" * 200, {"a": "int32"}),
            ),
            step(
                f'CREATE TABLE "long column" ("{"c" * 200}" INTEGER)',
                lambda tx: tx.create_table("long column", {"c" * 200: "int32"}),
            ),
            step('CREATE TABLE "Ü-1_x" (a INTEGER)', lambda tx: tx.create_table("Ü-1_x", {"a": "int32"})),
            step(
                'CREATE TABLE "CamelCase" (A INTEGER)',
                lambda tx: tx.create_table("CamelCase", {"A": "int32"}),
            ),
        ],
    ),
    Case(
        "defaults and NOT NULL",
        [
            step(
                "CREATE TABLE t (k INTEGER NOT NULL, "
                + ", ".join(f"{name} {kind} DEFAULT {text}" for name, (kind, text, _) in _DEFAULTS.items())
                + ")",
                lambda tx: tx.create_table(
                    "t",
                    {"k": "int32", **{name: kind for name, (kind, _, _) in _DEFAULTS.items()}},
                    defaults={name: value for name, (_, _, value) in _DEFAULTS.items()},
                    not_null=["k"],
                ),
            ),
        ],
    ),
    Case(
        "defaults fill what an insert leaves out",
        [
            step(
                "CREATE TABLE t (a INTEGER, b VARCHAR DEFAULT 'x', c INTEGER DEFAULT 7)",
                lambda tx: tx.create_table(
                    "t", {"a": "int32", "b": "varchar", "c": "int32"}, defaults={"b": "x", "c": 7}
                ),
            ),
            insert("t", "SELECT 1::INT AS a"),
            insert("t", "SELECT range::INT AS a, NULL::VARCHAR AS b FROM range(30)"),
        ],
    ),
    Case(
        "drop a table with files, deletes, partitions, sort order and comments",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR"}),
            step("COMMENT ON TABLE t IS 'x'", lambda tx: tx.set_comment("t", "x")),
            step("COMMENT ON COLUMN t.a IS 'y'", lambda tx: tx.set_comment("t", "y", column="a")),
            step("ALTER TABLE t SET PARTITIONED BY (b)", lambda tx: tx.set_partition_by("t", ["b"])),
            step("ALTER TABLE t SET SORTED BY (a)", lambda tx: tx.set_sort_by("t", ["a"])),
            insert("t", "SELECT range::INT AS a, 'p' AS b FROM range(50)"),
            insert("t", "SELECT 1000::INT AS a, 'q' AS b"),
            delete("t", "a < 20"),
            delete("t", "a = 49"),
            step("DROP TABLE t", lambda tx: tx.drop_table("t")),
        ],
        differs=["deletes"],
    ),
    Case(
        "rename a table, twice, with rows",
        [
            create("t", {"a": "INTEGER"}),
            insert("t", "SELECT 1::INT AS a"),
            step("ALTER TABLE t RENAME TO t2", lambda tx: tx.rename_table("t", "t2")),
            insert("t2", "SELECT 2::INT AS a"),
            step("ALTER TABLE t2 RENAME TO T2", lambda tx: tx.rename_table("t2", "T2")),
            step("ALTER TABLE t2 RENAME TO t", lambda tx: tx.rename_table("t2", "t")),
            step("ALTER TABLE t RENAME COLUMN a TO A", lambda tx: tx.rename_column("t", "a", "A")),
            insert("t", "SELECT range::INT AS a FROM range(20)"),
        ],
    ),
    Case(
        "create or replace a table",
        [
            create("t", {"a": "INTEGER"}),
            insert("t", "SELECT range::INT AS a FROM range(20)"),
            insert("t", "SELECT 77::INT AS a"),
            step(
                "CREATE OR REPLACE TABLE t (x VARCHAR)",
                lambda tx: tx.create_table("t", {"x": "varchar"}, or_replace=True),
            ),
            insert("t", "SELECT 'v' AS x"),
        ],
    ),
    Case(
        "create a table from rows",
        [
            together(
                step("CREATE TABLE t (a BIGINT)", lambda tx: tx.create_table("t", {"a": "int64"})),
                insert("t", "SELECT range AS a FROM range(50)"),
            ),
        ],
    ),
    Case(
        "drop and create in one transaction",
        [
            create("t", {"a": "INTEGER"}),
            insert("t", "SELECT range::INT AS a FROM range(20)"),
            together(
                step("DROP TABLE t", lambda tx: tx.drop_table("t")),
                create("t", {"x": "VARCHAR"}),
            ),
            insert("t", "SELECT 'v' AS x"),
        ],
    ),
    Case(
        "create, insert, alter, insert, rename in one transaction",
        [
            together(
                create("z", {"a": "INTEGER"}),
                insert("z", "SELECT 1::INT AS a"),
                step("ALTER TABLE z ADD COLUMN b INTEGER", lambda tx: tx.add_column("z", "b", "int32")),
                insert("z", "SELECT 2::INT AS a, 3::INT AS b"),
                step("ALTER TABLE z RENAME TO zz", lambda tx: tx.rename_table("z", "zz")),
            ),
        ],
        differs=["outcome"],
    ),
    Case(
        "several objects in one transaction",
        [
            create("old", {"a": "INTEGER"}),
            insert("old", "SELECT range::INT AS a FROM range(20)"),
            together(
                step("CREATE SCHEMA s", lambda tx: tx.create_schema("s")),
                create("s.t", {"a": "INTEGER", "b": "VARCHAR"}),
                step(
                    "CREATE VIEW s.v AS SELECT * FROM s.t",
                    lambda tx: tx.create_view("s.v", "SELECT * FROM s.t"),
                ),
                create("u", {"a": "INTEGER"}),
                insert("s.t", "SELECT range::INT AS a, 'x' AS b FROM range(30)"),
                insert("u", "SELECT 5::INT AS a"),
                delete("old", "a < 15"),
                step("COMMENT ON TABLE old IS 'c'", lambda tx: tx.set_comment("old", "c")),
            ),
        ],
        renumbered="DuckDB draws ids schema by schema and inserts before deletes, we in the order of calls",
    ),
]

TAGS = [
    Case(
        "comments on a table set, changed and cleared",
        [
            create("t", {"a": "INTEGER"}),
            step("COMMENT ON TABLE t IS 'c1'", lambda tx: tx.set_comment("t", "c1")),
            step("COMMENT ON TABLE t IS 'it''s \"c2\"'", lambda tx: tx.set_comment("t", 'it\'s "c2"')),
            step("COMMENT ON TABLE t IS NULL", lambda tx: tx.set_comment("t", None)),
            step("COMMENT ON TABLE t IS 'c3'", lambda tx: tx.set_comment("t", "c3")),
        ],
    ),
    Case(
        "comments on columns set, changed and cleared",
        [
            create("t", {"a": "INTEGER", "b": "INTEGER"}),
            step("COMMENT ON COLUMN t.a IS 'c1'", lambda tx: tx.set_comment("t", "c1", column="a")),
            step("COMMENT ON COLUMN t.b IS 'c2'", lambda tx: tx.set_comment("t", "c2", column="b")),
            step("COMMENT ON COLUMN t.a IS 'c3'", lambda tx: tx.set_comment("t", "c3", column="a")),
            step("COMMENT ON COLUMN t.a IS NULL", lambda tx: tx.set_comment("t", None, column="a")),
            step("ALTER TABLE t DROP COLUMN b", lambda tx: tx.drop_column("t", "b")),
        ],
    ),
    Case(
        "a table with comments from the start",
        [
            together(
                step(
                    ["CREATE TABLE t (a INTEGER)", "COMMENT ON TABLE t IS 'c'"],
                    lambda tx: tx.create_table("t", {"a": "int32"}, comment="c"),
                ),
                step("COMMENT ON COLUMN t.a IS 'd'", lambda tx: tx.set_comment("t", "d", column="a")),
            ),
        ],
        differs=["outcome"],
    ),
    Case(
        "comments on views",
        [
            create("t", {"a": "INTEGER"}),
            step(
                "CREATE VIEW v AS SELECT * FROM main.t",
                lambda tx: tx.create_view("v", "SELECT * FROM main.t"),
            ),
            step("COMMENT ON VIEW v IS 'c1'", lambda tx: tx.set_comment("v", "c1")),
            step("COMMENT ON VIEW v IS 'c2'", lambda tx: tx.set_comment("v", "c2")),
            step("DROP VIEW v", lambda tx: tx.drop_view("v")),
        ],
    ),
]

VIEWS = [
    Case(
        "views created, replaced, renamed and dropped",
        [
            step("CREATE SCHEMA s", lambda tx: tx.create_schema("s")),
            create("s.t", {"a": "INTEGER"}),
            step(
                "CREATE VIEW s.v AS SELECT * FROM s.t",
                lambda tx: tx.create_view("s.v", "SELECT * FROM s.t"),
            ),
            step(
                'CREATE OR REPLACE VIEW s.v (q, "r s") AS SELECT a, (a + 1) FROM s.t',
                lambda tx: tx.create_view(
                    "s.v", "SELECT a, (a + 1) FROM s.t", column_aliases=["q", "r s"], or_replace=True
                ),
            ),
            step("ALTER VIEW s.v RENAME TO v2", lambda tx: tx.rename_view("s.v", "v2")),
            step("DROP VIEW s.v2", lambda tx: tx.drop_view("s.v2")),
        ],
    ),
    Case(
        "a view created and renamed in one transaction",
        [
            create("t", {"a": "INTEGER"}),
            together(
                step(
                    "CREATE VIEW v AS SELECT * FROM main.t",
                    lambda tx: tx.create_view("v", "SELECT * FROM main.t"),
                ),
                step("ALTER VIEW v RENAME TO w", lambda tx: tx.rename_view("v", "w")),
            ),
        ],
        differs=["outcome"],
    ),
]

SCHEMAS = [
    Case(
        "schemas created and dropped, with everything in them",
        [
            step("CREATE SCHEMA s", lambda tx: tx.create_schema("s")),
            step("CREATE SCHEMA empty", lambda tx: tx.create_schema("empty")),
            create("s.t", {"a": "INTEGER"}),
            create("s.u", {"a": "INTEGER"}),
            insert("s.t", "SELECT range::INT AS a FROM range(20)"),
            insert("s.u", "SELECT 1::INT AS a"),
            step(
                "CREATE VIEW s.v AS SELECT * FROM s.t", lambda tx: tx.create_view("s.v", "SELECT * FROM s.t")
            ),
            step("DROP SCHEMA s CASCADE", lambda tx: tx.drop_schema("s", cascade=True)),
            step("DROP SCHEMA empty", lambda tx: tx.drop_schema("empty")),
            step("CREATE SCHEMA s", lambda tx: tx.create_schema("s")),
        ],
    ),
]

OPTIONS = [
    Case(
        "options of the lake, of a schema and of a table",
        [
            create("t", {"a": "INTEGER"}),
            option("parquet_compression", "SNAPPY"),
            option("parquet_compression", "zstd"),
            option("parquet_version", 2),
            option("parquet_compression_level", 3),
            option("target_file_size", "10MB"),
            option("target_file_size", "1GiB", schema="main"),
            option("parquet_row_group_size", 1000, schema="main", table="t"),
            option("hive_file_pattern", False),
            option("require_commit_message", False),
            option("rewrite_delete_threshold", 0.5),
            option("expire_older_than", "7 days"),
            option("delete_older_than", "1 month"),
            option("auto_compact", True, schema="main"),
            option("per_thread_output", False),
            option("sort_on_insert", False),
            option("data_inlining_row_limit", 7, schema="main"),
            option("data_inlining_row_limit", 3, schema="main", table="t"),
            insert("t", "SELECT range::INT AS a FROM range(3)"),
            insert("t", "SELECT range::INT AS a FROM range(4)"),
        ],
    ),
    Case(
        "inlining switched on after a table was made",
        [
            option("data_inlining_row_limit", 0),
            create("t", {"a": "INTEGER", "b": "VARCHAR"}),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            option("data_inlining_row_limit", 10),
            insert("t", "SELECT 2::INT AS a, 'x' AS b"),
            insert("t", "SELECT 3::INT AS a, 'x' AS b"),
        ],
    ),
    Case(
        "a table made without inlining is altered with it",
        [
            option("data_inlining_row_limit", 0),
            create("t", {"a": "INTEGER", "b": "VARCHAR"}),
            option("data_inlining_row_limit", 10),
            step("ALTER TABLE t ADD COLUMN c INTEGER", lambda tx: tx.add_column("t", "c", "int32")),
            insert("t", "SELECT 2::INT AS a, 'x' AS b, 3::INT AS c"),
        ],
    ),
    Case(
        "inlining switched off before a table is altered",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR"}),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            option("data_inlining_row_limit", 0),
            insert("t", "SELECT 2::INT AS a, 'x' AS b"),
        ],
    ),
]

NOTHING = [
    Case(
        "statements that find everything as it should be",
        [
            create("t", {"a": "INTEGER"}),
            step(
                "CREATE VIEW v AS SELECT * FROM main.t",
                lambda tx: tx.create_view("v", "SELECT * FROM main.t"),
            ),
            step(
                "CREATE TABLE IF NOT EXISTS t (x VARCHAR)",
                lambda tx: tx.create_table("t", {"x": "varchar"}, if_not_exists=True),
            ),
            step("CREATE SCHEMA IF NOT EXISTS main", lambda tx: tx.create_schema("main", if_not_exists=True)),
            step(
                "CREATE VIEW IF NOT EXISTS v AS SELECT 1",
                lambda tx: tx.create_view("v", "SELECT 1", if_not_exists=True),
            ),
            step("DROP TABLE IF EXISTS nothing", lambda tx: tx.drop_table("nothing", if_exists=True)),
            step("DROP VIEW IF EXISTS nothing", lambda tx: tx.drop_view("nothing", if_exists=True)),
            step("DROP SCHEMA IF EXISTS nothing", lambda tx: tx.drop_schema("nothing", if_exists=True)),
            step(
                "ALTER TABLE t ADD COLUMN IF NOT EXISTS a VARCHAR",
                lambda tx: tx.add_column("t", "a", "varchar", if_not_exists=True),
            ),
            step(
                "ALTER TABLE t DROP COLUMN IF EXISTS nothing",
                lambda tx: tx.drop_column("t", "nothing", if_exists=True),
            ),
            update("t", "a", "1", "false"),
        ],
    ),
    Case(
        "created and dropped in one transaction",
        [
            together(
                create("t", {"a": "INTEGER"}),
                insert("t", "SELECT range::INT AS a FROM range(20)"),
                step("DROP TABLE t", lambda tx: tx.drop_table("t")),
            ),
            create("u", {"a": "INTEGER"}),
        ],
    ),
]

SCHEMA_CASES = [*TABLES, *TAGS, *VIEWS, *SCHEMAS, *OPTIONS, *NOTHING]
