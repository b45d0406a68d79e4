"""Row images lose nothing on their way into Arrow."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.sources.images import reader, to_table
from headwater.sources.model import Form, SourceColumn

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
_DOCUMENT = st.recursive(
    st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_SPACE = st.sampled_from(["", " ", "\n\t"])
COLUMNS = (
    SourceColumn("i", 1, "bigint", "int64"),
    SourceColumn("n", 2, "numeric(38,9)", "decimal(38,9)"),
    SourceColumn("b", 3, "boolean", "boolean"),
    SourceColumn('odd "name"', 4, "text", "varchar"),
    SourceColumn("j", 5, "json", "json", Form.DOCUMENT),
)


@settings(deadline=None)
@given(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.decimals(-(10**28), 10**28, places=9, allow_nan=False),
    st.none() | st.booleans(),
    st.none() | _TEXT,
    st.none() | st.tuples(_DOCUMENT, _SPACE).map(lambda given: json.dumps(given[0], indent=len(given[1]))),
    _SPACE,
)
def test_values_are_what_was_printed(i: Any, n: Any, b: Any, s: Any, j: str | None, space: str) -> None:
    parts = [json.dumps(i), "null" if n is None else f"{n:f}", json.dumps(b), json.dumps(s), j or "null"]
    names = [json.dumps(column.name) for column in COLUMNS]
    members = ",".join(f"{space}{name}{space}:{space}{part}" for name, part in zip(names, parts, strict=True))
    image = "{" + members + space + "}"
    documents = to_table(reader(COLUMNS)([image]), COLUMNS)
    assert documents.drop_columns("j").to_pylist() == [{"i": i, "n": n, "b": b, 'odd "name"': s}]
    assert documents.column("j").to_pylist() == [j]
    # Without documents there is a quicker way.
    plain = COLUMNS[:4]
    short = "{" + ",".join(f"{name}:{part}" for name, part in list(zip(names, parts, strict=True))[:4]) + "}"
    assert (
        to_table(reader(plain)([short] * 2), plain).to_pylist() == documents.drop_columns("j").to_pylist() * 2
    )
