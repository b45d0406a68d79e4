"""MERGE: any number of clauses, one pass over the data, one snapshot.

A small source is sent to every executor, joined with the table once, and the rows that it changes come back
to the driver: one Spark job. Otherwise the two are joined as Spark joins large tables, the changed rows are
kept, and files are written from them. Either way the first clause whose condition a row meets decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from headwater.errors import InvalidInputError
from headwater.lake.writing.transaction import Transaction
from headwater.spark.writing.assigning import Value, value_of
from headwater.spark.writing.merging import run_merge
from headwater.spark.writing.transactions import Note, WriteResult, in_transaction

if TYPE_CHECKING:
    from headwater.spark.table import LakeTable

Condition = str | SparkColumn | None


class Case(Enum):
    """Which rows a clause is about."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class Action(Enum):
    """What a clause does."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True)
class Clause:
    """One WHEN … THEN …; `values` of None take every column from the source."""

    case: Case
    action: Action
    condition: Condition = None
    values: Mapping[str, SparkColumn] | None = field(default_factory=dict)


@dataclass(frozen=True)
class Merge:
    """A MERGE in the making; every method returns a new one.

    >>> (orders.merge(changes, on="t.id = s.id")  # doctest: +SKIP
    ...     .when_matched_delete("s.gone")
    ...     .when_matched_update_all()
    ...     .when_not_matched_insert_all()
    ...     .execute())
    """

    table: LakeTable
    source: DataFrame
    on: str | SparkColumn
    target_alias: str = "t"
    source_alias: str = "s"
    clauses: tuple[Clause, ...] = ()
    schema_may_change: bool = False

    def when_matched_update(self, set: Mapping[str, Value], condition: Condition = None) -> Self:
        """Change columns of rows that have a partner in the source."""
        return self._with(Case.MATCHED, Action.UPDATE, condition, _values(set))

    def when_matched_update_all(self, condition: Condition = None) -> Self:
        """Take every column of such rows from the source."""
        return self._with(Case.MATCHED, Action.UPDATE, condition, None)

    def when_matched_delete(self, condition: Condition = None) -> Self:
        """Remove such rows."""
        return self._with(Case.MATCHED, Action.DELETE, condition, {})

    def when_not_matched_insert(self, values: Mapping[str, Value], condition: Condition = None) -> Self:
        """Add rows of the source that have no partner in the table; other columns get their defaults."""
        return self._with(Case.NOT_MATCHED, Action.INSERT, condition, _values(values))

    def when_not_matched_insert_all(self, condition: Condition = None) -> Self:
        """Add such rows with all their columns."""
        return self._with(Case.NOT_MATCHED, Action.INSERT, condition, None)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Value], condition: Condition = None
    ) -> Self:
        """Change rows of the table that have no partner in the source."""
        return self._with(Case.NOT_MATCHED_BY_SOURCE, Action.UPDATE, condition, _values(set))

    def when_not_matched_by_source_delete(self, condition: Condition = None) -> Self:
        """Remove such rows."""
        return self._with(Case.NOT_MATCHED_BY_SOURCE, Action.DELETE, condition, {})

    def with_schema_evolution(self) -> Self:
        """Let `update_all` and `insert_all` add columns that only the source has."""
        return replace(self, schema_may_change=True)

    def execute(self, **note: Any) -> WriteResult:
        """Do it, in one snapshot."""
        if not self.clauses:
            raise InvalidInputError(
                "This MERGE has no clauses.", hint="Add one, for example when_matched_update_all()."
            )
        _check_order(self.clauses)

        def work(tx: Transaction) -> WriteResult:
            return run_merge(self.table.session, tx, self.table.name, self)

        return in_transaction(self.table.session, work, Note(**note), f"merge into {self.table.name}")

    def of(self, case: Case) -> list[Clause]:
        """The clauses about such rows, in their order."""
        return [clause for clause in self.clauses if clause.case is case]

    def _with(
        self, case: Case, action: Action, condition: Condition, values: Mapping[str, SparkColumn] | None
    ) -> Self:
        clause = Clause(case, action, condition, values)
        return replace(self, clauses=(*self.clauses, clause))


def _values(given: Mapping[str, Value]) -> dict[str, SparkColumn]:
    if not given:
        raise InvalidInputError("A clause needs at least one column.", hint='{"column": "s.column"}')
    return {name: value_of(value) for name, value in given.items()}


def _check_order(clauses: Sequence[Clause]) -> None:
    """A clause after one without a condition could never apply."""
    done: set[Case] = set()
    for clause in clauses:
        if clause.case in done:
            raise InvalidInputError(
                f"A clause for rows that are {clause.case.value} follows one that takes all of them.",
                hint="Give the earlier one a condition, or put it last.",
            )
        if clause.condition is None:
            done.add(clause.case)
