"""Differential cases about how tables look: columns, fields, defaults, NOT NULL, partitions, sort order."""

from __future__ import annotations

from headwater.lake.writing.columns import SqlExpression
from tests.lake.differential import Case, create, insert, step, together

_NESTED = {"id": "INTEGER", "s": "STRUCT(x INTEGER, y VARCHAR)", "l": "STRUCT(q SMALLINT)[]"}

COLUMNS = [
    Case(
        "add, rename, widen and drop a column, with inlined rows of every layout",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR"}),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            step("ALTER TABLE t RENAME COLUMN b TO bb", lambda tx: tx.rename_column("t", "b", "bb")),
            insert("t", "SELECT 2::INT AS a, 'x' AS bb"),
            step(
                "ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 7",
                lambda tx: tx.add_column("t", "c", "int32", default=7),
            ),
            insert("t", "SELECT 3::INT AS a, 'x' AS bb, 1::INT AS c"),
            step("ALTER TABLE t ALTER a SET DATA TYPE BIGINT", lambda tx: tx.widen_column("t", "a", "int64")),
            insert("t", "SELECT 4::BIGINT AS a, 'x' AS bb, 1::INT AS c"),
            step("ALTER TABLE t DROP COLUMN bb", lambda tx: tx.drop_column("t", "bb")),
            insert("t", "SELECT 5::BIGINT AS a, 1::INT AS c"),
            step("ALTER TABLE t ADD COLUMN bb DATE", lambda tx: tx.add_column("t", "bb", "date")),
            insert("t", "SELECT range AS a, 2::INT AS c, DATE '2020-01-01' AS bb FROM range(20)"),
        ],
        differs=["retyped"],
    ),
    Case(
        "every widening",
        [
            create(
                "t", {"i8": "TINYINT", "i16": "SMALLINT", "u8": "UTINYINT", "u32": "UINTEGER", "f": "FLOAT"}
            ),
            insert(
                "t",
                "SELECT -1::TINYINT i8, -2::SMALLINT i16, 3::UTINYINT u8, 4::UINTEGER u32, 1.1::FLOAT f "
                "FROM range(20)",
            ),
            step(
                "ALTER TABLE t ALTER i8 SET DATA TYPE SMALLINT",
                lambda tx: tx.widen_column("t", "i8", "int16"),
            ),
            step(
                "ALTER TABLE t ALTER i8 SET DATA TYPE BIGINT", lambda tx: tx.widen_column("t", "i8", "int64")
            ),
            step(
                "ALTER TABLE t ALTER i16 SET DATA TYPE INTEGER",
                lambda tx: tx.widen_column("t", "i16", "int32"),
            ),
            step(
                "ALTER TABLE t ALTER u8 SET DATA TYPE UBIGINT",
                lambda tx: tx.widen_column("t", "u8", "uint64"),
            ),
            step(
                "ALTER TABLE t ALTER u32 SET DATA TYPE UBIGINT",
                lambda tx: tx.widen_column("t", "u32", "uint64"),
            ),
            step(
                "ALTER TABLE t ALTER f SET DATA TYPE DOUBLE", lambda tx: tx.widen_column("t", "f", "float64")
            ),
            insert(
                "t", "SELECT 5::BIGINT i8, 6::INT i16, 7::UBIGINT u8, 8::UBIGINT u32, 9.25 f FROM range(20)"
            ),
        ],
        differs=["retyped"],
    ),
    Case(
        "defaults set and dropped",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR"}),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            step("ALTER TABLE t ALTER a SET DEFAULT 5", lambda tx: tx.set_default("t", "a", 5)),
            step("ALTER TABLE t ALTER b SET DEFAULT 'y'", lambda tx: tx.set_default("t", "b", "y")),
            insert("t", "SELECT 2::INT AS a"),
            step("ALTER TABLE t ALTER a DROP DEFAULT", lambda tx: tx.set_default("t", "a", None)),
            insert("t", "SELECT 'z' AS b"),
            step(
                "ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 7",
                lambda tx: tx.add_column("t", "c", "int32", default=7),
            ),
            step("ALTER TABLE t ALTER c SET DEFAULT 8", lambda tx: tx.set_default("t", "c", 8)),
            insert("t", "SELECT 'z' AS b, 1::INT AS a"),
            step("ALTER TABLE t ALTER c DROP DEFAULT", lambda tx: tx.set_default("t", "c", None)),
            insert("t", "SELECT 'z' AS b, 1::INT AS a"),
        ],
    ),
    Case(
        "a default that is computed",
        [
            create("t", {"a": "INTEGER", "b": "INTEGER"}),
            step(
                "ALTER TABLE t ALTER a SET DEFAULT (1 + 1)",
                lambda tx: tx.set_default("t", "a", SqlExpression("(1 + 1)")),
            ),
            insert("t", "SELECT 2::INT AS b"),
        ],
    ),
    Case(
        "NOT NULL set and dropped",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR"}),
            insert("t", "SELECT 1::INT AS a, NULL::VARCHAR AS b"),
            step("ALTER TABLE t ALTER a SET NOT NULL", lambda tx: tx.set_not_null("t", "a")),
            insert("t", "SELECT 2::INT AS a"),
            step("ALTER TABLE t ALTER a DROP NOT NULL", lambda tx: tx.drop_not_null("t", "a")),
            insert("t", "SELECT 'z' AS b"),
        ],
        differs=["values after NULL"],
    ),
    Case(
        "fields of structs added, renamed and dropped",
        [
            create("t", _NESTED),
            insert(
                "t",
                "SELECT range::INT AS id, {'x': range::INT, 'y': 'v'} AS s, [{'q': 1::SMALLINT}] AS l "
                "FROM range(20)",
            ),
            step("ALTER TABLE t ADD COLUMN s.z INTEGER", lambda tx: tx.add_column("t", ("s", "z"), "int32")),
            step("ALTER TABLE t RENAME COLUMN s.y TO w", lambda tx: tx.rename_column("t", ("s", "y"), "w")),
            step("ALTER TABLE t DROP COLUMN s.x", lambda tx: tx.drop_column("t", ("s", "x"))),
            step("ALTER TABLE t RENAME COLUMN s TO r", lambda tx: tx.rename_column("t", "s", "r")),
            step("ALTER TABLE t RENAME COLUMN r TO s", lambda tx: tx.rename_column("t", "r", "s")),
            step(
                "ALTER TABLE t ADD COLUMN l.element.r VARCHAR",
                lambda tx: tx.add_column("t", ("l", "element", "r"), "varchar"),
            ),
            insert(
                "t",
                "SELECT range::INT AS id, {'w': 'v', 'z': 1::INT} AS s, [{'q': 1::SMALLINT, 'r': 'k'}] AS l "
                "FROM range(20)",
            ),
        ],
        differs=["nested columns"],
    ),
    Case(
        "several alterations of one table in one transaction",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR", "c": "DATE"}),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            together(
                step("ALTER TABLE t RENAME COLUMN b TO bb", lambda tx: tx.rename_column("t", "b", "bb")),
                step("ALTER TABLE t ADD COLUMN d INTEGER", lambda tx: tx.add_column("t", "d", "int32")),
                step("ALTER TABLE t DROP COLUMN c", lambda tx: tx.drop_column("t", "c")),
                step("ALTER TABLE t ALTER a SET DEFAULT 9", lambda tx: tx.set_default("t", "a", 9)),
            ),
            insert("t", "SELECT 2::INT AS a, 'y' AS bb, 3::INT AS d"),
        ],
    ),
]

LAYOUT = [
    Case(
        "partitioning set, changed and reset",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR", "d": "TIMESTAMP"}),
            step("ALTER TABLE t SET PARTITIONED BY (b)", lambda tx: tx.set_partition_by("t", ["b"])),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            step(
                "ALTER TABLE t SET PARTITIONED BY (bucket(4, a), year(d), month(d), day(d), hour(d))",
                lambda tx: tx.set_partition_by(
                    "t", ["bucket(4, a)", "year(d)", "month(d)", "day(d)", "hour(d)"]
                ),
            ),
            insert("t", "SELECT 2::INT AS a, 'x' AS b"),
            step("ALTER TABLE t RESET PARTITIONED BY", lambda tx: tx.set_partition_by("t", [])),
            insert("t", "SELECT range::INT AS a, 'x' AS b FROM range(20)"),
        ],
    ),
    Case(
        "a table partitioned from the start",
        [
            together(
                create("t", {"a": "INTEGER", "b": "VARCHAR"}),
                step("ALTER TABLE t SET PARTITIONED BY (b)", lambda tx: tx.set_partition_by("t", ["b"])),
            ),
            insert("t", "SELECT range::INT AS a, 'x' AS b FROM range(20)"),
        ],
        differs=["outcome"],
    ),
    Case(
        "sort order set, changed and reset",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR"}),
            step(
                "ALTER TABLE t SET SORTED BY (a DESC NULLS FIRST, b)",
                lambda tx: tx.set_sort_by("t", ["a desc nulls first", "b"]),
            ),
            insert("t", "SELECT range::INT AS a, 'x' AS b FROM range(20)"),
            step("ALTER TABLE t SET SORTED BY (b ASC NULLS LAST)", lambda tx: tx.set_sort_by("t", ["b"])),
            step("ALTER TABLE t RESET SORTED BY", lambda tx: tx.set_sort_by("t", [])),
            insert("t", "SELECT range::INT AS a, 'x' AS b FROM range(20)"),
        ],
    ),
    Case(
        "sorted by an expression and by an odd name",
        [
            create("t", {"Odd Name": "INTEGER", "b": "VARCHAR"}),
            step('ALTER TABLE t SET SORTED BY ("Odd Name")', lambda tx: tx.set_sort_by("t", ['"Odd Name"'])),
            step(
                "ALTER TABLE t SET SORTED BY (lower(b) DESC)",
                lambda tx: tx.set_sort_by("t", ["lower(b) desc"]),
            ),
        ],
    ),
    Case(
        "sort columns renamed",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR", "s": "STRUCT(x INTEGER)"}),
            step(
                "ALTER TABLE t SET SORTED BY (lower(b) DESC, a)",
                lambda tx: tx.set_sort_by("t", ["LOWER( b ) desc", "A"]),
            ),
            step("ALTER TABLE t RENAME COLUMN b TO c", lambda tx: tx.rename_column("t", "b", "c")),
            step('ALTER TABLE t RENAME COLUMN a TO "a b"', lambda tx: tx.rename_column("t", "a", "a b")),
        ],
    ),
    Case(
        "partition columns renamed",
        [
            create("t", {"a": "INTEGER", "b": "VARCHAR"}),
            step("ALTER TABLE t SET PARTITIONED BY (b)", lambda tx: tx.set_partition_by("t", ["b"])),
            step("ALTER TABLE t RENAME COLUMN b TO c", lambda tx: tx.rename_column("t", "b", "c")),
            insert("t", "SELECT range::INT AS a, 'x' AS c FROM range(20)"),
        ],
    ),
]

COLUMN_CASES = [*COLUMNS, *LAYOUT]
