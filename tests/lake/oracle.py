"""DuckDB's own DuckLake extension as the judge, on a catalog in a local DuckDB file (no server needed)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from headwater.lake.format.types import type_text
from headwater.lake.model import Column, ColumnStats
from tests.support import extension, literal


class Oracle:
    """A lake that DuckDB alone created; rows can be inserted by DuckDB or as files of ours."""

    def __init__(self, folder: Path, *, inline: int = 0, encrypted: bool = False):
        self.folder = folder
        self.tables = 0
        self.duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for name in ("ducklake", "httpfs"):
            self.duck.execute(f"LOAD {literal(extension(name))}")
        self.duck.execute("SET TimeZone = 'UTC'")
        self.duck.execute("SET threads = 1")
        self.duck.execute(
            f"ATTACH {literal('ducklake:' + str(folder / 'catalog.db'))} AS lake "
            f"(DATA_PATH {literal(str(folder) + '/')}, DATA_INLINING_ROW_LIMIT {inline}"
            f"{', ENCRYPTED' if encrypted else ''})"
        )
        self.duck.execute("USE lake")

    def close(self) -> None:
        self.duck.close()

    def create(self, columns: tuple[Column, ...] | list[Column]) -> str:
        """A new table of these columns; its name."""
        self.tables += 1
        name = f"t{self.tables}"
        parts = ", ".join(f'"{c.name}" {type_text(c)}' for c in columns)
        self.duck.execute(f"CREATE TABLE {name}({parts})")
        return name

    def insert(self, name: str, data: pa.Table) -> None:
        self.duck.register("incoming", data)
        self.duck.execute(f"INSERT INTO {name} SELECT * FROM incoming")
        self.duck.unregister("incoming")

    def meta(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.duck.execute(sql.replace("$", "__ducklake_metadata_lake.main."), parameters).fetchall()

    def table_id(self, name: str) -> int:
        return int(self.meta("SELECT table_id FROM $ducklake_table WHERE table_name = ?", name)[0][0])

    def file_stats(self, name: str) -> dict[int, tuple[Any, ...]]:
        """value_count, null_count, min, max, contains_nan of the table's files, by column id."""
        rows = self.meta(
            "SELECT column_id, value_count, null_count, min_value, max_value, contains_nan "
            "FROM $ducklake_file_column_stats WHERE table_id = ? ORDER BY data_file_id, column_id",
            self.table_id(name),
        )
        return {row[0]: row[1:] for row in rows}

    def files(self, name: str) -> list[str]:
        rows = self.meta(
            "SELECT path FROM $ducklake_data_file WHERE table_id = ? ORDER BY data_file_id",
            self.table_id(name),
        )
        return [str(self.folder / "main" / name / row[0]) for row in rows]

    def adopt(
        self,
        name: str,
        path: Path,
        rows: int,
        *,
        footer_size: int | None = None,
        stats: tuple[ColumnStats, ...] = (),
        key: str | None = None,
    ) -> None:
        """Commit a file of ours to the catalog by hand, as a foreign writer would."""
        table = self.table_id(name)
        latest = self.meta("SELECT * FROM $ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1")[0]
        snapshot, _, version, catalog_id, file_id = latest
        run = self.meta
        run("BEGIN")
        run(
            "INSERT INTO $ducklake_snapshot VALUES (?, now(), ?, ?, ?)",
            snapshot + 1,
            version,
            catalog_id,
            file_id + 1,
        )
        run(
            "INSERT INTO $ducklake_snapshot_changes (snapshot_id, changes_made) VALUES (?, ?)",
            snapshot + 1,
            f"inserted_into_table:{table}",
        )
        run(
            "INSERT INTO $ducklake_data_file (data_file_id, table_id, begin_snapshot, path, "
            "path_is_relative, file_format, record_count, file_size_bytes, "
            "footer_size, row_id_start, encryption_key) "
            "VALUES (?, ?, ?, ?, false, 'parquet', ?, ?, ?, 0, ?)",
            file_id, table, snapshot + 1, str(path), rows, path.stat().st_size, footer_size, key,
        )  # fmt: skip
        run("DELETE FROM $ducklake_table_stats WHERE table_id = ?", table)
        run("INSERT INTO $ducklake_table_stats VALUES (?, ?, ?, ?)", table, rows, rows, path.stat().st_size)
        for one in stats:
            run(
                "INSERT INTO $ducklake_file_column_stats (data_file_id, table_id, column_id, "
                "column_size_bytes, value_count, null_count, min_value, max_value, "
                "contains_nan, extra_stats) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                file_id, table, one.column_id, one.size_bytes, one.value_count, one.null_count,
                one.min_value, one.max_value, one.contains_nan, one.extra_stats,
            )  # fmt: skip
        run("COMMIT")

    def read(self, name: str, where: str = "") -> list[tuple[Any, ...]]:
        """All rows, every value as DuckDB prints it."""
        return self.duck.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {name} {where} ORDER BY ALL").fetchall()
