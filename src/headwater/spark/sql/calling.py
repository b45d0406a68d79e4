"""CALL lake.system.…: procedures of the lake, with positional and named arguments.

CALL lake.system.compact(table => 'sales.orders', target_size => '128MB')

Who has the procedures (the engine) puts them into `LakeSpark.procedures`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.errors import InvalidInputError, NotFoundError
from headwater.spark.sql.catalyst import LAKE, items, kind_of

if TYPE_CHECKING:
    from headwater.spark.sql.statement import Statement

SYSTEM = "system"
#: Takes the arguments of a CALL and returns rows that all have the same columns.
Procedure = Callable[..., Sequence[Mapping[str, Any]]]
_KINDS: dict[type, st.DataType] = {bool: st.BooleanType(), int: st.LongType(), float: st.DoubleType()}


def call(statement: Statement) -> DataFrame | None:
    """Run a procedure of the lake; another catalog's is Spark's."""
    parts = [str(part) for part in items(statement.plan.procedure().nameParts())]
    if len(parts) != 3 or parts[0].lower() != LAKE:
        return None
    known = statement.session.procedures
    if parts[1].lower() != SYSTEM or parts[2].lower() not in known:
        near = difflib.get_close_matches(parts[2].lower(), known, n=1)
        listed = ", ".join(f"{LAKE}.{SYSTEM}.{name}" for name in known)
        raise NotFoundError(
            f"There is no procedure {'.'.join(parts)}.",
            hint=f"Did you mean {LAKE}.{SYSTEM}.{near[0]}?" if near else f"There are: {listed}.",
            procedure=".".join(parts),
        )
    name = parts[2].lower()
    positional, named = _arguments(statement)
    rows = known[name](*_bound(name, known[name], positional, named))
    return _frame(statement, rows)


def _arguments(statement: Statement) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument in items(statement.plan.args()):
        if kind_of(argument) != "NamedArgumentExpression":
            positional.append(statement.catalyst.value(argument))
            continue
        key = str(argument.key()).lower()
        if key in named:
            raise InvalidInputError(f"The argument {key} is given twice.")
        named[key] = statement.catalyst.value(argument.value())
    return positional, named


def _bound(name: str, procedure: Procedure, positional: list[Any], named: dict[str, Any]) -> list[Any]:
    """The values of all parameters, in their order."""
    parameters = list(inspect.signature(procedure).parameters.values())
    known = [parameter.name for parameter in parameters]
    for key in named:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise InvalidInputError(
                f"{LAKE}.{SYSTEM}.{name} has no argument {key}.",
                hint=f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}.",
                argument=key,
            )
    if len(positional) > len(known):
        raise InvalidInputError(
            f"{LAKE}.{SYSTEM}.{name} takes at most {len(known)} arguments.",
            hint=f"They are: {', '.join(known)}.",
        )
    values = []
    for place, parameter in enumerate(parameters):
        if place < len(positional):
            if parameter.name in named:
                raise InvalidInputError(f"The argument {parameter.name} is given twice.")
            values.append(positional[place])
        elif parameter.name in named:
            values.append(named[parameter.name])
        elif parameter.default is inspect.Parameter.empty:
            raise InvalidInputError(f"{LAKE}.{SYSTEM}.{name} needs the argument {parameter.name}.")
        else:
            values.append(parameter.default)
    return values


def _frame(statement: Statement, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    spark = statement.session.spark
    if not rows:
        return spark.createDataFrame([], st.StructType([st.StructField("nothing", st.StringType())]))
    fields = []
    for key in rows[0]:
        kinds = {type(row[key]) for row in rows if row[key] is not None}
        kind = _KINDS.get(next(iter(kinds), str), st.StringType())
        fields.append(st.StructField(key, kind))
    values = [tuple(v if v is None or type(v) in _KINDS else str(v) for v in row.values()) for row in rows]
    return spark.createDataFrame(values, st.StructType(fields))
