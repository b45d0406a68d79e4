"""The exact filter: a condition evaluated by DuckDB on rows in memory, with DuckDB's own meaning of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.algebra.predicates import Predicate, columns, parse_predicate
from headwater.errors import InvalidInputError
from headwater.lake.format.types import type_text
from headwater.lake.model import Column, Table
from headwater.storage.duckdb_engine import sandbox
from headwater.typedefs import quote_name

#: Columns that every table has although no file stores them under that name, as in DuckDB.
HIDDEN = {
    "rowid": pa.int64(),
    "snapshot_id": pa.int64(),
    "filename": pa.string(),
    "file_row_number": pa.int64(),
}
#: Types that DuckDB would take for another one, given their Arrow form alone.
_CAST = frozenset({"int128", "uint128", "timetz", "variant"})
_PLACE = "__headwater_place"
_ROWS = "__headwater_rows"


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on the rows of a table, with what must be read to evaluate it."""

    text: str
    predicate: Predicate
    table_name: str
    columns: tuple[Column, ...]
    """The table's columns that the condition names."""
    hidden: tuple[str, ...]
    """The hidden columns that it names."""
    candidates: str
    """All columns there are, for messages."""

    @classmethod
    def of(cls, text: str, table: Table) -> RowFilter:
        """Read the condition; names that are no columns are left for DuckDB to judge."""
        predicate = parse_predicate(text)
        found: dict[int, Column] = {}
        hidden: dict[str, None] = {}
        for path in columns(predicate):
            for name in path:
                column = table.column(name)
                if column is not None:
                    found[column.id] = column
                elif name.lower() in HIDDEN:
                    hidden[name.lower()] = None
        names = [quote_name(column.name) for column in table.columns]
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        return cls(text, predicate, table.name.name, tuple(found.values()), tuple(hidden), shown)

    def matches(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """For each row whether it meets the condition. `rows` must have the columns named above."""
        selected = [_selected(column) for column in self.columns] + [_quoted(name) for name in self.hidden]
        names = [column.name for column in self.columns] + list(self.hidden)
        places = pa.array(np.arange(rows.num_rows, dtype=np.int64))
        given = rows.select(names).append_column(_PLACE, places)
        # The condition is selected rather than put into WHERE: DuckDB hands a WHERE down to Arrow,
        # whose comparisons know no order of NaN.
        query = (
            f"SELECT {_PLACE}, coalesce(CAST((\n{self.text}\n) AS BOOLEAN), FALSE) "
            f"FROM (SELECT {', '.join([*selected, _PLACE])} FROM {_ROWS}) AS {_quoted(self.table_name)}"
        )
        with sandbox() as session:
            session.register(_ROWS, given)
            try:
                result = session.execute(query).to_arrow_table()
            except duckdb.Error as error:
                raise self._refused(error) from None
        kept = np.zeros(rows.num_rows, np.bool_)
        kept[result.column(0).to_numpy()] = result.column(1).to_numpy()
        return kept

    def _refused(self, error: duckdb.Error) -> InvalidInputError:
        return InvalidInputError(
            f"The condition on {quote_name(self.table_name)} cannot be evaluated: {self.text.strip()}",
            detail=re.split(r"\n\nLINE|\nCandidate", str(error))[0].strip(),
            hint=f"Write what would follow WHERE in DuckDB's SQL; columns are {self.candidates}.",
            text=self.text,
        )


def _selected(column: Column) -> str:
    name = _quoted(column.name)
    if column.type == "variant":
        return f"CAST(CAST({name} AS JSON) AS VARIANT) AS {name}"
    return f"CAST({name} AS {type_text(column)}) AS {name}" if column.type in _CAST else name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
