from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headwater.lake.format.values import default_array
from headwater.lake.model import Column
from headwater.lake.writing.row_sql import assign
from tests.lake.random_data import NESTED_TEXTS, SCALAR_TEXTS, columns, table

COLUMNS = columns((*SCALAR_TEXTS, "interval", *NESTED_TEXTS))
ROWS = table(random.Random(3), COLUMNS, 20, nan=False)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column.name}-{column.type}")
def test_a_column_of_any_type_can_be_set_by_an_expression(column: Column) -> None:
    changed = assign(ROWS, COLUMNS, {column.name: column.name})

    assert changed.column(column.name).type.equals(ROWS.column(column.name).type)
    assert changed.column(column.name).equals(ROWS.column(column.name))


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column.name}-{column.type}")
def test_a_column_of_any_type_can_be_set_to_null(column: Column) -> None:
    changed = assign(ROWS, COLUMNS, {column.name: "NULL"})

    assert changed.column(column.name).equals(pa.chunked_array([default_array(column, 20)]))
