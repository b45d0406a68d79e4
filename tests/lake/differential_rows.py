"""Differential cases about rows: inserts, deletes, updates, inlined and not, partitions, flushes."""

from __future__ import annotations

from tests.lake.differential import (
    Case,
    create,
    delete,
    insert,
    option,
    signed,
    step,
    together,
    update,
)

#: For every type that can be inlined: ordinary values, extreme ones, NULL.
VALUES = {
    "boolean": ("BOOLEAN", ["true", "false"]),
    "int8": ("TINYINT", ["-128", "127"]),
    "int16": ("SMALLINT", ["-32768", "32767"]),
    "int32": ("INTEGER", ["-2147483648", "2147483647"]),
    "int64": ("BIGINT", ["-9223372036854775808", "9223372036854775807"]),
    "uint8": ("UTINYINT", ["0", "255"]),
    "uint16": ("USMALLINT", ["0", "65535"]),
    "uint32": ("UINTEGER", ["0", "4294967295"]),
    "uint64": ("UBIGINT", ["0", "18446744073709551615"]),
    "float32": ("FLOAT", ["-1.5", "3.4e38"]),
    "float64": ("DOUBLE", ["0.1", "-1e300"]),
    "small": ("DECIMAL(4,1)", ["-999.9", "999.9"]),
    "large": ("DECIMAL(38,10)", ["-1234567890123456789012345678.0123456789", "0"]),
    "day": ("DATE", ["'1969-12-31'", "'2024-02-29'"]),
    "clock": ("TIME", ["'00:00:00'", "'23:59:59.999999'"]),
    "moment": ("TIMESTAMP", ["'1969-12-31 23:59:59.999999'", "'2024-02-29 12:34:56.5'"]),
    "seconds": ("TIMESTAMP_S", ["'1969-12-31 23:59:59'", "'2024-02-29 12:34:56'"]),
    "millis": ("TIMESTAMP_MS", ["'1969-12-31 23:59:59.999'", "'2024-02-29 12:34:56.5'"]),
    "nanos": ("TIMESTAMP_NS", ["'1969-12-31 23:59:59.999999999'", "'2024-02-29 12:34:56.5'"]),
    "instant": ("TIMESTAMPTZ", ["'1969-12-31 23:59:59.999999+00'", "'2024-02-29 12:34:56.5+02'"]),
    "text": ("VARCHAR", ["''", "'it''s \"quoted\", größer 🦆'"]),
    "doc": ("JSON", ["'{\"a\": [1, null]}'", "'\"x\"'"]),
    "raw": ("BLOB", ["'\\x00\\xFF'", "''"]),
    "id": ("UUID", ["'00000000-0000-0000-0000-000000000001'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"]),
}
#: Types whose statistics DuckDB gets wrong.
ODD_VALUES = {
    "zoned": ("TIMETZ", ["'00:00:00+00'", "'23:59:59.999999+00'"]),
    "span": ("INTERVAL", ["'1 month 2 days 3 seconds'", "'5 years 1 millisecond'"]),
    "huge": ("HUGEINT", ["-1234567", "5"]),
    "uhuge": ("UHUGEINT", ["0", "1234567"]),
}
_COLUMNS = {name: kind for name, (kind, _) in VALUES.items()}
_ODD_COLUMNS = {name: kind for name, (kind, _) in ODD_VALUES.items()}


def _rows(*picks: int | None, of: dict[str, tuple[str, list[str]]] = VALUES) -> str:
    """One row for each pick: the first or the second value of every column, or NULL."""
    selects = []
    for pick in picks:
        values = ("NULL" if pick is None else texts[pick] for _, texts in of.values())
        named = zip(values, of.items(), strict=True)
        selects.append("SELECT " + ", ".join(f'({v})::{kind} AS "{name}"' for v, (name, (kind, _)) in named))
    return " UNION ALL ".join(selects)


def _nested(*values: str) -> str:
    typed = zip(values, _NESTED.items(), strict=True)
    return "SELECT " + ", ".join(f"({value})::{kind} AS {name}" for value, (name, kind) in typed)


_N = {"a": "INTEGER", "b": "VARCHAR"}
_NESTED = {"l": "INTEGER[]", "s": "STRUCT(x INTEGER, y VARCHAR[])", "m": "MAP(VARCHAR, DOUBLE)"}
_HUNDRED = "SELECT range::INT AS a, 'v' || range AS b FROM range(100)"

INSERTS = [
    Case(
        "inlined rows of every type",
        [create("t", _COLUMNS), insert("t", _rows(0, 1, None)), insert("t", _rows(1))],
    ),
    Case(
        "files with every type",
        [
            option("data_inlining_row_limit", 0),
            create("t", _COLUMNS),
            insert("t", _rows(0, 1, None)),
            insert("t", _rows(1)),
            insert("t", _rows(None)),
        ],
    ),
    Case(
        "inlined rows of odd types",
        [create("t", _ODD_COLUMNS), insert("t", _rows(0, 1, None, of=ODD_VALUES))],
        differs=["unused bounds"],
    ),
    Case(
        "files with odd types",
        [
            option("data_inlining_row_limit", 0),
            create("t", _ODD_COLUMNS),
            insert("t", _rows(0, 1, of=ODD_VALUES)),
        ],
        only_rows="DuckDB counts 0 values and 0 NULLs in such columns; ours leaves out what it does not know",
    ),
    Case(
        "rows at and above the limit of inlining",
        [
            create("t", _N),
            insert("t", "SELECT range::INT AS a, 'x' AS b FROM range(10)"),
            insert("t", "SELECT range::INT AS a, 'x' AS b FROM range(11)"),
        ],
    ),
    Case(
        "first rows are all NULL",
        [
            create("t", _N),
            insert("t", "SELECT NULL::INT AS a, NULL::VARCHAR AS b"),
            insert("t", "SELECT NULL::INT AS a, NULL::VARCHAR AS b FROM range(20)"),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
        ],
        differs=["values after NULL"],
    ),
    Case(
        "nothing inserted",
        [create("t", _N), insert("t", "SELECT 1::INT AS a, 'x' AS b WHERE false"), delete("t", "a = 1")],
    ),
    Case(
        "NaN and infinity",
        [
            create("t", {"a": "DOUBLE", "b": "FLOAT"}),
            insert("t", "SELECT 'nan'::DOUBLE AS a, 1::FLOAT AS b"),
            insert("t", "SELECT 'inf'::DOUBLE AS a, '-inf'::FLOAT AS b"),
            insert("t", "SELECT if(range = 3, 'nan'::DOUBLE, range) AS a, range::FLOAT AS b FROM range(20)"),
            insert("t", "SELECT '-0.0'::DOUBLE AS a, '-0.0'::FLOAT AS b FROM range(20)"),
        ],
        differs=["minus zero"],
    ),
    Case(
        "a file of nothing but NaN",
        [
            create("t", {"a": "DOUBLE"}),
            insert("t", "SELECT range::DOUBLE AS a FROM range(20)"),
            insert("t", "SELECT 'nan'::DOUBLE AS a FROM range(20)"),
        ],
        differs=["lost bounds"],
    ),
    Case(
        "long strings",
        [
            create("t", {"a": "VARCHAR", "b": "BLOB"}),
            insert("t", "SELECT repeat('x', 300) AS a, repeat('y', 300)::BLOB AS b"),
            insert("t", "SELECT 'ab' || repeat('ä', 200) AS a, repeat('z', 257)::BLOB AS b FROM range(20)"),
            insert("t", "SELECT repeat('~', 256) AS a, repeat('~', 256)::BLOB AS b FROM range(20)"),
        ],
    ),
    Case(
        "long strings without an ASCII character",
        [create("t", {"a": "VARCHAR"}), insert("t", "SELECT repeat('ä', 200) AS a FROM range(20)")],
        differs=["lost bounds"],
    ),
    Case(
        "a column added before and after the first rows",
        [
            create("t", {"a": "INTEGER"}),
            insert("t", "SELECT range::INT AS a FROM range(20)"),
            step("ALTER TABLE t ADD COLUMN b INTEGER", lambda tx: tx.add_column("t", "b", "int32")),
            insert("t", "SELECT range::INT AS a, 5::INT AS b FROM range(20)"),
            insert("t", "SELECT 1::INT AS a, 6::INT AS b"),
        ],
    ),
    Case(
        "files with nested values",
        [
            option("data_inlining_row_limit", 0),
            create("t", _NESTED),
            insert("t", _nested("[1, NULL, 3]", "{'x': 1, 'y': ['a']}", "MAP {'k': 'nan'::DOUBLE}")),
            insert("t", _nested("[]", "NULL", "MAP {}")),
            insert("t", _nested("NULL", "{'x': NULL, 'y': NULL}", "NULL")),
        ],
    ),
    Case(
        "few nested values",
        [
            create("t", _NESTED),
            insert("t", _nested("[1, NULL, 3]", "{'x': 1, 'y': ['a']}", "MAP {'k': 1.5}")),
        ],
        only_rows="DuckDB inlines nested values as text that does not always read back; we write a file",
    ),
    Case(
        "who wrote it and why",
        [
            create("t", _N),
            signed(insert("t", _HUNDRED), author="me", message='it\'s "done"', extra_info='{"a": 1}'),
            signed(insert("t", "SELECT 1::INT AS a, 'x' AS b"), author="me", message="m", extra_info=None),
        ],
    ),
]

DELETES = [
    Case(
        "rows kept in the catalog",
        [
            create("t", _N),
            insert("t", "SELECT range::INT AS a, 'x' AS b FROM range(5)"),
            delete("t", "a = 3"),
            delete("t", "a < 2"),
            delete("t"),
        ],
    ),
    Case(
        "a few rows of a file, then a few more",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            delete("t", "a = 3"),
            delete("t", "a IN (3, 4, 50)"),
            delete("t", "a > 95"),
        ],
        differs=["deletes"],
    ),
    Case(
        "many rows of a file, then many more",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            delete("t", "a < 20"),
            delete("t", "a BETWEEN 40 AND 60"),
            delete("t", "a > 80"),
        ],
        differs=["deletes"],
    ),
    Case(
        "a few rows, then many, then a few",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            delete("t", "a = 0"),
            delete("t", "a < 20"),
            delete("t", "a = 55"),
        ],
        differs=["deletes"],
    ),
    Case(
        "every row of a file at once",
        [create("t", _N), insert("t", _HUNDRED), delete("t", "a >= 0")],
    ),
    Case(
        "every row of a file, piece by piece",
        [create("t", _N), insert("t", _HUNDRED), delete("t", "a < 50"), delete("t", "a >= 50")],
        differs=["deletes"],
    ),
    Case(
        "the only row of a file",
        [
            option("data_inlining_row_limit", 0),
            create("t", _N),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            delete("t", "a = 1"),
        ],
    ),
    Case(
        "everything: files and inlined rows",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            insert("t", "SELECT range::INT AS a, 'w' AS b FROM range(20)"),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            delete("t"),
            insert("t", "SELECT 2::INT AS a, 'x' AS b"),
        ],
    ),
    Case(
        "truncate",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            step("TRUNCATE t", lambda tx: tx.truncate("t")),
            insert("t", "SELECT 2::INT AS a, 'x' AS b"),
            step("TRUNCATE t", lambda tx: tx.truncate("t")),
        ],
    ),
    Case(
        "without inlining",
        [
            option("data_inlining_row_limit", 0),
            create("t", _N),
            insert("t", _HUNDRED),
            delete("t", "a = 3"),
            delete("t", "a = 4"),
        ],
        differs=["deletes"],
    ),
    Case(
        "rows of several files at once",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            insert("t", "SELECT (range + 50)::INT AS a, 'w' AS b FROM range(100)"),
            delete("t", "a >= 60"),
        ],
        renumbered="DuckDB draws the ids of delete files in the order in which its threads end",
    ),
    Case(
        "rows inserted by the same transaction",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            together(
                insert("t", "SELECT 600::INT AS a, 'x' AS b"),
                delete("t", "a = 600 OR a = 60"),
                insert("t", "SELECT (1000 + range)::INT AS a, 'z' AS b FROM range(20)"),
                delete("t", "a = 1003"),
            ),
        ],
    ),
]

UPDATES = [
    Case(
        "a few rows of a file, then the same again",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            update("t", "b", "'q'", "a = 3"),
            update("t", "b", "'qq'", "a = 3"),
        ],
        differs=["deletes"],
    ),
    Case(
        "rows kept in the catalog",
        [
            create("t", _N),
            insert("t", "SELECT range::INT AS a, 'x' AS b FROM range(5)"),
            update("t", "a", "a + 100", "a > 2"),
            update("t", "b", "NULL"),
        ],
    ),
    Case(
        "many rows of a file",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            update("t", "b", "b || '!'", "a < 30"),
            update("t", "a", "a + 1", "a < 60"),
        ],
        differs=["row_id_start"],
    ),
    Case(
        "every row of a file",
        [create("t", _N), insert("t", _HUNDRED), update("t", "b", "'same'")],
        differs=["row_id_start"],
    ),
]

PARTITIONS = [
    Case(
        "inserts into partitions of every kind",
        [
            option("data_inlining_row_limit", 0),
            create("t", {"a": "INTEGER", "b": "VARCHAR", "d": "TIMESTAMP"}),
            step(
                "ALTER TABLE t SET PARTITIONED BY (b, year(d), month(d))",
                lambda tx: tx.set_partition_by("t", ["b", "year(d)", "month(d)"]),
            ),
            insert("t", "SELECT 1::INT AS a, 'x' AS b, TIMESTAMP '2020-02-03 04:05:06' AS d"),
            insert("t", "SELECT 2::INT AS a, 'sp ace/é=%' AS b, TIMESTAMP '1969-12-31 23:00:00' AS d"),
            insert("t", "SELECT 3::INT AS a, NULL::VARCHAR AS b, NULL::TIMESTAMP AS d"),
            insert("t", "SELECT 4::INT AS a, '' AS b, TIMESTAMP '2020-02-03 04:05:06' AS d"),
            step(
                "ALTER TABLE t SET PARTITIONED BY (day(d), hour(d), bucket(4, a), bucket(3, b))",
                lambda tx: tx.set_partition_by("t", ["day(d)", "hour(d)", "bucket(4, a)", "bucket(3, b)"]),
            ),
            insert("t", "SELECT 5::INT AS a, 'x' AS b, TIMESTAMP '2020-02-03 04:05:06' AS d"),
            insert("t", "SELECT NULL::INT AS a, NULL::VARCHAR AS b, NULL::TIMESTAMP AS d"),
            option("hive_file_pattern", False),
            insert("t", "SELECT 6::INT AS a, 'x' AS b, TIMESTAMP '2020-02-03 04:05:06' AS d"),
        ],
    ),
    Case(
        "partition keys that are not text",
        [
            option("data_inlining_row_limit", 0),
            create(
                "t",
                {
                    "i": "BIGINT",
                    "f": "DOUBLE",
                    "n": "DECIMAL(10,2)",
                    "d": "DATE",
                    "q": "BOOLEAN",
                    "u": "UUID",
                },
            ),
            step(
                "ALTER TABLE t SET PARTITIONED BY (i, f, n, d, q, u)",
                lambda tx: tx.set_partition_by("t", ["i", "f", "n", "d", "q", "u"]),
            ),
            insert(
                "t",
                "SELECT -5::BIGINT AS i, 1.5::DOUBLE AS f, 3.1::DECIMAL(10,2) AS n, DATE '2020-01-02' AS d, "
                "true AS q, '00000000-0000-0000-0000-00000000000a'::UUID AS u",
            ),
        ],
    ),
    Case(
        "several partitions at once",
        [
            create("t", _N),
            step("ALTER TABLE t SET PARTITIONED BY (b)", lambda tx: tx.set_partition_by("t", ["b"])),
            insert("t", "SELECT range::INT AS a, 'p' || range % 3 AS b FROM range(30)"),
            update("t", "b", "'p9'", "a < 15"),
            delete("t", "b = 'p9'"),
        ],
        renumbered="DuckDB draws the ids of files in the order in which its threads end",
    ),
    Case(
        "inlined rows of a partitioned table",
        [
            create("t", _N),
            step("ALTER TABLE t SET PARTITIONED BY (b)", lambda tx: tx.set_partition_by("t", ["b"])),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            delete("t", "a = 1"),
        ],
    ),
]

_FLUSH = "CALL ducklake_flush_inlined_data('lake')"

FLUSHES = [
    Case(
        "live rows",
        [
            create("t", _N),
            insert("t", "SELECT 1::INT AS a, 'x' AS b"),
            insert("t", "SELECT 2::INT AS a, NULL::VARCHAR AS b"),
            step(_FLUSH, lambda tx: tx.flush_inlined("t")),
            insert("t", "SELECT 3::INT AS a, 'y' AS b"),
            step(_FLUSH, lambda tx: tx.flush_inlined("t")),
        ],
        differs=["row_id_start"],
    ),
    Case(
        "rows, some of them dead",
        [
            create("t", _N),
            insert("t", "SELECT range::INT AS a, 'x' AS b FROM range(5)"),
            update("t", "b", "'y'", "a = 2"),
            delete("t", "a = 3"),
            step(_FLUSH, lambda tx: tx.flush_inlined("t")),
            delete("t", "a = 1"),
        ],
        differs=["row_id_start", "flushed deletes", "deletes"],
    ),
    Case(
        "deletes of files",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            delete("t", "a = 3"),
            delete("t", "a = 5"),
            step(_FLUSH, lambda tx: tx.flush_inlined("t")),
        ],
        differs=["deletes", "flushed file deletes"],
    ),
    Case(
        "deletes of files that have a delete file",
        [
            create("t", _N),
            insert("t", _HUNDRED),
            delete("t", "a < 20"),
            delete("t", "a = 55"),
            step(_FLUSH, lambda tx: tx.flush_inlined("t")),
        ],
        differs=["deletes", "flushed file deletes"],
    ),
    Case(
        "nothing to flush",
        [create("t", _N), insert("t", _HUNDRED), step(_FLUSH, lambda tx: tx.flush_inlined("t"))],
    ),
]

ROW_CASES = [*INSERTS, *DELETES, *UPDATES, *PARTITIONS, *FLUSHES]
