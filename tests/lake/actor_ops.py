"""What an actor can do to a lake: each operation for Headwater, for DuckDB, and for an ordinary DuckDB table.

The ordinary table is the model: it knows nothing of snapshots, files or catalogs. Operations are drawn from a
`random.Random` and the model's state alone, so a step's number always means the same on the same lake.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import pyarrow as pa

from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import TableName
from tests.lake.actor_values import (
    NESTED,
    SCALARS,
    WIDER,
    condition,
    is_nested,
    quoted,
    rows,
    sql_type,
    value,
)
from tests.support import literal

#: Types to make buckets of. Only for tables without rows: with a bucket key DuckDB finds no row of files that
#: were written before, its own included.
BUCKETED = ("int64", "int32", "varchar", "date", "uuid", "timestamp", "decimal(18,3)", "blob")
_ODD_NAMES = ("sp ace", 'quo"te', "Ümlaut", "select", "a.b")


@dataclass(frozen=True)
class ModelColumn:
    id: int
    """Its own for as long as the column lives, whatever its name and type."""
    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    """As an SQL expression."""


@dataclass(frozen=True)
class ModelTable:
    """A table as both actors should see it; its rows are in table `m<number>` of the model."""

    number: int
    name: str
    columns: tuple[ModelColumn, ...]
    partition: tuple[str, ...] = ()
    """Names of the columns it is partitioned by."""
    sort: tuple[str, ...] = ()
    used: bool = False
    """It has, or had, rows."""

    @property
    def rows(self) -> str:
        return f"m{self.number}"

    @property
    def id(self) -> TableName:
        return TableName("main", self.name)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(c.name, c.type) for c in self.columns]

    @property
    def sql(self) -> str:
        return quoted(self.name)


Tables = dict[int, ModelTable]


@dataclass
class Op:
    """One operation, in three languages."""

    label: str
    ours: Callable[[Transaction], object]
    duck: list[str]
    model: list[str]
    change: Callable[[Tables], None] = lambda tables: None
    """What becomes of the model's tables, given those at the moment of the commit."""
    incoming: pa.Table | None = None
    """Rows that the statements call `incoming`."""
    tables: frozenset[int] = frozenset()
    adds_nested: bool = False
    """It adds a struct, list or map to a table."""
    retypes: bool = False
    """It changes the type of a column."""


@dataclass
class Model:
    """The lake as it should be."""

    duck: duckdb.DuckDBPyConnection
    tables: Tables = field(default_factory=dict)
    numbers: int = 0
    names: int = 0
    columns: int = 0

    def pick(self, rng: random.Random) -> ModelTable | None:
        return self.tables[rng.choice(sorted(self.tables))] if self.tables else None

    def fresh_name(self, rng: random.Random, prefix: str) -> str:
        self.names += 1
        odd = f" {rng.choice(_ODD_NAMES)}" if rng.random() < 0.15 else ""
        return f"{prefix}{self.names}{odd}"

    def fresh_id(self) -> int:
        self.columns += 1
        return self.columns

    def query(self, sql: str) -> pa.Table:
        return self.duck.execute(sql).to_arrow_table()

    def has(self, sql: str) -> bool:
        return bool(self.duck.execute(f"SELECT EXISTS ({sql})").fetchall()[0][0])


Draw = Callable[[random.Random, Model], Op | None]


def _on(
    table: ModelTable, label: str, ours: Callable[[Transaction], object], duck: Any, model: Any, **more: Any
) -> Op:
    lists = [[one] if isinstance(one, str) else list(one) for one in (duck, model)]
    return Op(label, ours, lists[0], lists[1], tables=frozenset({table.number}), **more)


# -- tables ------------------------------------------------------------------------------------------------


def create_table(rng: random.Random, model: Model) -> Op | None:
    if len(model.tables) >= 4:
        return None
    model.numbers += 1
    columns = [
        ModelColumn(model.fresh_id(), "k", rng.choice(["int64", "int32", "int16"]), rng.random() < 0.7)
    ]
    for type_ in rng.sample(SCALARS, rng.randint(1, 4)) + (
        rng.sample(NESTED, 1) if rng.random() < 0.3 else []
    ):
        default = value(rng, type_) if not is_nested(type_) and rng.random() < 0.2 else None
        nullable = rng.random() < 0.85
        columns.append(ModelColumn(model.fresh_id(), model.fresh_name(rng, "c"), type_, nullable, default))
    table = ModelTable(model.numbers, model.fresh_name(rng, "t"), tuple(columns))
    keys = _partition(rng, table) if rng.random() < 0.4 else ()
    parts = [
        f"{quoted(c.name)} {sql_type(c.type)}"
        + (f" DEFAULT {c.default}" if c.default else "")
        + ("" if c.nullable else " NOT NULL")
        for c in columns
    ]
    duck = [f"CREATE TABLE {table.sql} ({', '.join(parts)})"]
    if keys:
        duck.append(f"ALTER TABLE {table.sql} SET PARTITIONED BY ({', '.join(text for _, text in keys)})")
    defaults = {c.name: _as_text(model, c.default) for c in columns if c.default}
    bare = ", ".join(f"{quoted(c.name)} {sql_type(c.type)}" for c in columns)

    def ours(tx: Transaction) -> None:
        tx.create_table(
            table.id,
            {c.name: c.type for c in columns},
            partition_by=[text for _, text in keys],
            defaults=defaults,
            not_null=[c.name for c in columns if not c.nullable],
        )

    made = replace(table, partition=tuple(column for column, _ in keys))
    return _on(
        table,
        "; ".join(duck),
        ours,
        duck,
        f"CREATE TABLE {table.rows} ({bare})",
        change=lambda tables: tables.update({made.number: made}),
    )


def _as_text(model: Model, expression: str) -> str:
    return str(model.duck.execute(f"SELECT CAST({expression} AS VARCHAR)").fetchall()[0][0])


def _partition(rng: random.Random, table: ModelTable) -> tuple[tuple[str, str], ...]:
    """Column and key, one or two of them."""
    keys = []
    for column in rng.sample(table.columns, min(len(table.columns), rng.randint(1, 2))):
        name = quoted(column.name)
        if is_nested(column.type):
            continue
        choices = (
            [name] if column.type in ("boolean", "int8", "varchar", "date", "decimal(4,2)", "int16") else []
        )
        if column.type.startswith(("date", "timestamp")):
            choices += [f"year({name})", f"month({name})"]
        if not table.used and column.type in BUCKETED:
            choices.append(f"bucket(3, {name})")
        if choices:
            keys.append((column.name, rng.choice(choices)))
    return tuple(keys)


def drop_table(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None or len(model.tables) < 2:
        return None
    return _on(
        table,
        f"DROP TABLE {table.sql}",
        lambda tx: tx.drop_table(table.id),
        f"DROP TABLE {table.sql}",
        f"DROP TABLE {table.rows}",
        change=lambda tables: tables.pop(table.number) and None,
    )


def rename_table(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None:
        return None
    name = model.fresh_name(rng, "r")
    sql = f"ALTER TABLE {table.sql} RENAME TO {quoted(name)}"
    return _on(
        table,
        sql,
        lambda tx: tx.rename_table(table.id, name),
        sql,
        [],
        change=_altered(table, name=name),
    )


def _altered(table: ModelTable, **changes: Any) -> Callable[[Tables], None]:
    def change(tables: Tables) -> None:
        tables[table.number] = replace(tables[table.number], **changes)

    return change


# -- columns -----------------------------------------------------------------------------------------------


def add_column(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None or len(table.columns) > 8:
        return None
    type_ = rng.choice(SCALARS if rng.random() < 0.85 else NESTED)
    text = value(rng, type_) if not is_nested(type_) and rng.random() < 0.5 else None
    default = None if text is None else _as_text(model, text)
    column = ModelColumn(model.fresh_id(), model.fresh_name(rng, "c"), type_, default=text)
    sql = f"ADD COLUMN {quoted(column.name)} {sql_type(type_)}" + (
        f" DEFAULT {literal(default)}" if default is not None else ""
    )
    return _on(
        table,
        f"ALTER TABLE {table.sql} {sql}",
        lambda tx: tx.add_column(table.id, column.name, type_, default=default),
        f"ALTER TABLE {table.sql} {sql}",
        f"ALTER TABLE {table.rows} {sql}",
        change=_altered(table, columns=(*table.columns, column)),
        adds_nested=is_nested(type_),
    )


def _column(rng: random.Random, table: ModelTable, *, but: tuple[str, ...] = ("k",)) -> ModelColumn | None:
    choices = [c for c in table.columns if c.name not in but]
    return rng.choice(choices) if choices else None


def drop_column(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    column = _column(rng, table, but=("k", *table.partition, *table.sort)) if table else None
    if table is None or column is None:
        return None
    sql = f"DROP COLUMN {quoted(column.name)}"
    return _on(
        table,
        f"ALTER TABLE {table.sql} {sql}",
        lambda tx: tx.drop_column(table.id, column.name),
        f"ALTER TABLE {table.sql} {sql}",
        f"ALTER TABLE {table.rows} {sql}",
        change=_altered(table, columns=tuple(c for c in table.columns if c is not column)),
    )


def rename_column(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    column = _column(rng, table, but=("k", *table.partition, *table.sort)) if table else None
    if table is None or column is None:
        return None
    free = [c for c in ("c1", "c2", "c3") if all(c != other.name for other in table.columns)]
    name = rng.choice(free) if free and rng.random() < 0.3 else model.fresh_name(rng, "c")
    sql = f"RENAME COLUMN {quoted(column.name)} TO {quoted(name)}"
    return _on(
        table,
        f"ALTER TABLE {table.sql} {sql}",
        lambda tx: tx.rename_column(table.id, column.name, name),
        f"ALTER TABLE {table.sql} {sql}",
        f"ALTER TABLE {table.rows} {sql}",
        change=_altered(table, columns=_with(table, column, replace(column, name=name))),
    )


def _with(table: ModelTable, old: ModelColumn, new: ModelColumn) -> tuple[ModelColumn, ...]:
    return tuple(new if c is old else c for c in table.columns)


def widen_column(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    choices = [c for c in table.columns if c.type in WIDER and c.name not in table.partition] if table else []
    if table is None or not choices:
        return None
    column = rng.choice(choices)
    type_ = rng.choice(WIDER[column.type])
    sql = f"ALTER COLUMN {quoted(column.name)} SET DATA TYPE {sql_type(type_)}"
    return _on(
        table,
        f"ALTER TABLE {table.sql} {sql}",
        lambda tx: tx.widen_column(table.id, column.name, type_),
        f"ALTER TABLE {table.sql} {sql}",
        f"ALTER TABLE {table.rows} {sql}",
        change=_altered(table, columns=_with(table, column, replace(column, type=type_))),
        retypes=True,
    )


def set_not_null(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    column = rng.choice(table.columns) if table else None
    if table is None or column is None:
        return None
    if column.nullable and model.has(f"SELECT 1 FROM {table.rows} WHERE {quoted(column.name)} IS NULL"):
        return None
    sql = f"ALTER COLUMN {quoted(column.name)} {'SET' if column.nullable else 'DROP'} NOT NULL"

    def ours(tx: Transaction) -> None:
        (tx.set_not_null if column.nullable else tx.drop_not_null)(table.id, column.name)

    changed = replace(column, nullable=not column.nullable)
    return _on(
        table,
        f"ALTER TABLE {table.sql} {sql}",
        ours,
        f"ALTER TABLE {table.sql} {sql}",
        [],
        change=_altered(table, columns=_with(table, column, changed)),
    )


def set_partition_by(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None:
        return None
    keys = _partition(rng, table) if rng.random() < 0.8 else ()
    if not keys and not table.partition:
        return None
    texts = [text for _, text in keys]
    clause = f"SET PARTITIONED BY ({', '.join(texts)})" if keys else "RESET PARTITIONED BY"
    return _on(
        table,
        f"ALTER TABLE {table.sql} {clause}",
        lambda tx: tx.set_partition_by(table.id, texts),
        f"ALTER TABLE {table.sql} {clause}",
        [],
        change=_altered(table, partition=tuple(column for column, _ in keys)),
    )


def set_sort_by(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None:
        return None
    columns = [c.name for c in table.columns if not is_nested(c.type)]
    keys = tuple(rng.sample(columns, 1)) if rng.random() < 0.7 else ()
    if not keys and not table.sort:
        return None
    texts = [f"{quoted(name)} {rng.choice(['ASC', 'DESC'])} NULLS FIRST" for name in keys]
    clause = f"SET SORTED BY ({', '.join(texts)})" if keys else "RESET SORTED BY"
    return _on(
        table,
        f"ALTER TABLE {table.sql} {clause}",
        lambda tx: tx.set_sort_by(table.id, texts),
        f"ALTER TABLE {table.sql} {clause}",
        [],
        change=_altered(table, sort=keys),
    )


def comment(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None:
        return None
    return _on(
        table,
        f"COMMENT ON TABLE {table.sql} IS 'x'",
        lambda tx: tx.set_comment(table.id, "x"),
        f"COMMENT ON TABLE {table.sql} IS 'x'",
        [],
    )


def create_view(rng: random.Random, model: Model) -> Op | None:
    """Views come and go beside the tables; what counts is that they change nothing about them."""
    table = model.pick(rng)
    if table is None:
        return None
    query = f"SELECT count(*) AS n FROM main.{table.sql}"
    return _on(
        table,
        f"CREATE OR REPLACE VIEW v AS {query}",
        lambda tx: tx.create_view("v", query, or_replace=True),
        f"CREATE OR REPLACE VIEW v AS {query}",
        [],
    )


# -- rows --------------------------------------------------------------------------------------------------


def insert(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None:
        return None
    count = rng.choice([0, 1, 2, 5, 10, 11, 15, 30, 60])
    columns = [c for c in table.columns if c.name == "k" or not c.nullable or rng.random() < 0.9]
    incoming = model.query(rows(rng, [(c.name, c.type, c.nullable) for c in columns], count))
    names = ", ".join(quoted(c.name) for c in columns)
    given = {c.name for c in columns}
    values = ", ".join(quoted(c.name) if c.name in given else c.default or "NULL" for c in table.columns)
    return _on(
        table,
        f"INSERT INTO {table.sql} ({names}) -- {count} rows",
        lambda tx: tx.append(table.id, incoming),
        f"INSERT INTO {table.sql} ({names}) SELECT * FROM incoming",
        f"INSERT INTO {table.rows} SELECT {values} FROM incoming",
        change=_altered(table, used=True),
        incoming=incoming,
    )


def delete(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None:
        return None
    where = "true" if rng.random() < 0.08 else condition(rng, table.pairs)
    return _on(
        table,
        f"DELETE FROM {table.sql} WHERE {where}",
        lambda tx: tx.delete(table.id, where),
        f"DELETE FROM {table.sql} WHERE {where}",
        f"DELETE FROM {table.rows} WHERE {where}",
    )


def truncate(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None:
        return None
    return _on(
        table,
        f"TRUNCATE {table.sql}",
        lambda tx: tx.truncate(table.id),
        f"TRUNCATE {table.sql}",
        f"DELETE FROM {table.rows}",
    )


def update(rng: random.Random, model: Model) -> Op | None:
    table = model.pick(rng)
    if table is None:
        return None
    where = "true" if rng.random() < 0.1 else condition(rng, table.pairs)
    changes: dict[str, str] = {}
    for column in rng.sample(table.columns, rng.randint(1, min(2, len(table.columns)))):
        if column.name == "k":
            changes["k"] = "(k * 7 + 3) % 61"
        else:
            changes[column.name] = value(rng, column.type, 0.2 if column.nullable else 0)
    assigned = ", ".join(f"{quoted(name)} = {text}" for name, text in changes.items())
    return _on(
        table,
        f"UPDATE {table.sql} SET {assigned} WHERE {where}",
        lambda tx: tx.update(table.id, changes, where),
        f"UPDATE {table.sql} SET {assigned} WHERE {where}",
        f"UPDATE {table.rows} SET {assigned} WHERE {where}",
    )


OPERATIONS: dict[str, Draw] = {
    operation.__name__: operation
    for operation in (
        create_table, drop_table, rename_table, add_column, drop_column, rename_column, widen_column,
        set_not_null, set_partition_by, set_sort_by, comment, create_view, insert, delete, truncate, update,
    )
}  # fmt: skip
