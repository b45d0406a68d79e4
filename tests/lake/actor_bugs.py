"""What DuckDB 1.5.5 does wrong, each by its name: the only things that the two actors go around."""

from __future__ import annotations

DROPPED_INLINED_TABLE = (
    "A flush drops inlined tables of older column layouts; sessions that know them die of an internal error."
)
WIDENED_BEFORE = (
    "Conditions on a column die of an internal error at snapshots from before its type was widened."
)
WIDENED_IN_CACHE = (
    "Sessions that know statistics of a column die of an internal error once another session has widened it. "
    "(Not if we have: then a counter moves at which they forget them.)"
)
MERGE_RENUMBERS = (
    "Merging files gives rows other row ids, if the table is sorted or ids that files embed look contiguous."
)
INLINING_BESIDE_VIEW = (
    "Setting data_inlining_row_limit for a lake that has a view ends the process (SIGSEGV)."
)
STATISTICS_TOO_TIGHT = (
    "A table's statistics do not cover all its values: after a rewrite they cover the newest snapshot alone; "
    "after a first insert whose first file is all NULL in a column, the next insert's bounds are taken for "
    "the column's; of intervals the NULLs are not counted."
)
ADDED_AND_ALTERED = (
    "A struct, list or map that a transaction adds and alters loses its fields, and nobody can open the lake "
    "any more."
)

#: What DuckDB says it does not do.
REFUSALS = (
    "Cannot SET NOT NULL",  # it trusts statistics, which remember deleted rows, and looks at no row itself
    "Failed to read inlined-data aggregates",  # a rewrite, after a column was added beside inlined rows
)


def brief(error: Exception) -> str:
    """A message of DuckDB without the stack that internal errors carry."""
    return str(error).split("\n\nStack Trace")[0]
