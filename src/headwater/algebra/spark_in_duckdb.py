"""What means one thing in Spark and another in DuckDB, by name, and how it is written there.

sqlglot carries most of a query over; here is what it leaves with another meaning, or cannot write. What
depends on the type of a value, which a text does not show, is decided by `typeof` when DuckDB binds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import sqlglot
from sqlglot import exp

from headwater.algebra.building.functions import is_chance
from headwater.errors import UnsupportedError

Rule = Callable[[exp.Expr], exp.Expr]

#: Functions of other names or other meaning: `_1`, `_2`, … are the arguments.
_NAMED: dict[str, dict[int, str]] = {
    "pmod": {2: "(((_1 % _2) + _2) % _2)"},
    "isnull": {1: "(_1 IS NULL)"},
    "isnotnull": {1: "(_1 IS NOT NULL)"},
    "nanvl": {2: "CASE WHEN isnan(_1) THEN _2 ELSE _1 END"},
    "zeroifnull": {1: "coalesce(_1, 0)"},
    "nullifzero": {1: "nullif(_1, 0)"},
    "weekday": {1: "(isodow(CAST(_1 AS DATE)) - 1)"},
    "timestamp_seconds": {1: "to_timestamp(_1)"},
    "timestamp_millis": {1: "to_timestamp(_1 / 1000)"},
    "bround": {1: "round_even(_1, 0)", 2: "round_even(_1, _2)"},
    "rint": {1: "round_even(_1, 0)"},
    "hypot": {2: "sqrt(_1 * _1 + _2 * _2)"},
    "positive": {1: "(_1)"},
    "negative": {1: "(-(_1))"},
    "cardinality": {1: "len(_1)"},
    "std": {1: "stddev_samp(_1)"},
    "every": {1: "bool_and(_1)"},
    "some": {1: "bool_or(_1)"},
    "try_sum": {1: "sum(_1)"},
    "try_avg": {1: "avg(_1)"},
    "mean": {1: "avg(_1)"},
    "any_value": {1: "first(_1)"},
    "dayname": {1: "left(dayname(CAST(_1 AS TIMESTAMP)), 3)"},
    "monthname": {1: "left(monthname(CAST(_1 AS TIMESTAMP)), 3)"},
    "date_from_unix_date": {1: "(DATE '1970-01-01' + CAST(_1 AS INTEGER))"},
    "timestamp_micros": {1: "make_timestamptz(CAST(_1 AS BIGINT))"},
    "get": {2: "CASE WHEN _2 >= 0 THEN list_extract(_1, _2 + 1) END"},
}
#: The same functions by name in both, with other results, or none that another engine could have.
_OWN = {
    **dict.fromkeys(("hash", "typeof", "version", "user"), "is of each engine's own"),
    "time_bucket": "counts months from the origin in Spark, and from their first day in DuckDB",
}
#: What DuckDB computes by another method, so that a difference would say nothing.
_REFUSED: dict[type[exp.Expr], str] = {
    exp.ApproxDistinct: "approx_count_distinct estimates, and each engine in its own way",
    exp.ApproxQuantile: "approx_percentile estimates, and each engine in its own way",
    exp.Format: "format_string has no counterpart",
    exp.Skewness: "skewness is that of a sample in DuckDB and of the population in Spark",
    exp.ArrayDistinct: "array_distinct keeps the order of elements, DuckDB's list_distinct does not",
    exp.TableSample: "TABLESAMPLE gives other rows each time",
    exp.BitmapConstructAgg: "bitmap_construct_agg gives another form of bitmap",
    exp.JSONFormat: "to_json leaves out fields that are NULL, and DuckDB's does not",
    exp.ParseJSON: "parse_json gives a value of Spark's own kind",
    **dict.fromkeys(
        (exp.CurrentCatalog, exp.CurrentDatabase, exp.CurrentSchema, exp.CurrentUser, exp.SessionUser),
        "where and for whom a query runs differs",
    ),
}
_WHOLE = frozenset(
    (exp.DataType.Type.TINYINT, exp.DataType.Type.SMALLINT, exp.DataType.Type.INT, exp.DataType.Type.BIGINT)
)
_TEXT = frozenset((exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR))
#: Around an aggregate.
_AROUND = (exp.Filter, exp.WithinGroup, exp.Window)
_TRUNCATED = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    **dict.fromkeys(("MONTH", "MON", "MM"), "month"),
    "QUARTER": "quarter",
    "WEEK": "week",
}


def bridge(tree: exp.Expr, moment: datetime | None = None) -> exp.Expr:
    """The query with everything rewritten that would be carried over with another meaning.

    `moment` is what the current time is taken to be; None leaves it to DuckDB.
    """
    for node in list(tree.dfs())[::-1]:  # children first, so that no result is rewritten again
        new = _rewritten(node, moment)
        if new is not node:
            if node is tree:
                tree = new
            else:
                node.replace(new)
    _collect(tree)
    return tree


def at_moment(tree: exp.Expr, moment: datetime) -> exp.Expr:
    """The query with the current time replaced by another."""
    return tree.transform(lambda node: _moment(node, moment) or node)


def refused(why: str) -> UnsupportedError:
    """The error for what cannot be translated."""
    return UnsupportedError("The query cannot be translated for DuckDB.", detail=why)


def _rewritten(node: exp.Expr, moment: datetime | None) -> exp.Expr:
    if is_chance(node):
        raise refused(f"{node.sql(dialect='spark')} gives something else each time")
    for kind, why in _REFUSED.items():
        if isinstance(node, kind):
            raise refused(why)
    if moment is not None and (now := _moment(node, moment)) is not None:
        return now
    name = _name(node) if isinstance(node, exp.Func) else ""
    if name in _OWN:
        raise refused(f"{name} {_OWN[name]}")
    if name in _NAMED:
        arguments = list(node.iter_expressions())
        template = _NAMED[name].get(len(arguments))
        return node if template is None else _sql(template, *arguments)
    if isinstance(node, exp.Anonymous) and name in ("date_part", "datepart") and len(node.expressions) == 2:
        return _part(node.expressions[0].name, node.expressions[1]) or node
    rule = next((_RULES[kind] for kind in type(node).__mro__ if kind in _RULES), None)
    return node if rule is None else rule(node)


def _name(node: exp.Func) -> str:
    return (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()


def _moment(node: exp.Expr, moment: datetime) -> exp.Expr | None:
    then = moment.astimezone(UTC)
    if isinstance(node, exp.CurrentDate):
        return _sql(f"CAST('{then:%Y-%m-%d}' AS DATE)")
    text = then.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(node, exp.Localtimestamp):
        return _sql(f"CAST('{text}' AS TIMESTAMP)")
    if isinstance(node, exp.CurrentTimestamp) or (
        isinstance(node, exp.Anonymous) and node.name.lower() == "now"
    ):
        return _sql(f"CAST('{text}+00' AS TIMESTAMPTZ)")
    return None


def _sql(template: str, *arguments: exp.Expr) -> exp.Expr:
    """DuckDB's SQL with arguments put in for `_1`, `_2`, …"""
    made = sqlglot.parse_one(template, read="duckdb")

    def argument(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.name[:1] == "_" and node.name[1:].isdecimal():
            return _grouped(arguments[int(node.name[1:]) - 1])
        return node

    return made.transform(argument)


def _grouped(value: exp.Expr) -> exp.Expr:
    plain = isinstance(value, (exp.Column, exp.Literal, exp.Paren, exp.Func))
    return value.copy() if plain else exp.Paren(this=value.copy())


# -- values --------------------------------------------------------------------------------------------------


def _cast(node: exp.Expr) -> exp.Expr:
    """Spark cuts decimals off where DuckDB rounds, and writes times and NaN in another way."""
    kind, value = node.args["to"].this, node.this
    if isinstance(value, exp.Literal) and value.is_string:
        return node
    if kind in _WHOLE:
        name = node.args["to"].sql(dialect="duckdb")
        return _sql(
            "CASE WHEN typeof(_1) IN ('DOUBLE', 'FLOAT') "
            f"THEN TRY_CAST(trunc(TRY_CAST(CAST(_1 AS TEXT) AS DOUBLE)) AS {name}) "
            "WHEN typeof(_1) LIKE 'DECIMAL%' "
            f"THEN TRY_CAST(regexp_replace(CAST(_1 AS TEXT), '[.].*$', '') AS {name}) "
            f"ELSE TRY_CAST(_1 AS {name}) END",
            value,
        )
    if kind in _TEXT:
        return _sql(
            "CASE WHEN typeof(_1) = 'TIMESTAMP WITH TIME ZONE' "
            "THEN regexp_replace(CAST(_1 AS TEXT), '[+]00$', '') "
            "WHEN typeof(_1) IN ('DOUBLE', 'FLOAT') AND CAST(_1 AS TEXT) = 'nan' THEN 'NaN' "
            "ELSE CAST(_1 AS TEXT) END",
            value,
        )
    return node


def _substring(node: exp.Expr) -> exp.Expr:
    start = node.args.get("start")
    if start is None or (isinstance(start, exp.Literal) and start.name != "0") or isinstance(start, exp.Neg):
        return node
    new = node.copy()
    new.set("start", _sql("CASE WHEN _1 = 0 THEN 1 ELSE _1 END", start))
    return new


def _substring_index(node: exp.Expr) -> exp.Expr:
    text, mark, count = node.this, node.args["delimiter"], node.args["count"]
    number = count.this if isinstance(count, exp.Neg) else count
    if not (isinstance(number, exp.Literal) and number.is_int) or node.args.get("case_insensitive"):
        raise refused("substring_index with a number of parts that is not constant")
    piece = f"[-{number.name}:]" if isinstance(count, exp.Neg) else f"[1:{number.name}]"
    return _sql(f"array_to_string(string_split(_1, _2){piece}, _2)", text, mark)


def _like(node: exp.Expr) -> exp.Expr:
    """Spark's patterns escape by a backslash unless another character is named."""
    if isinstance(node.parent, exp.Escape) or (
        node.expression.is_string and "\\" not in node.expression.name
    ):
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _concat_ws(node: exp.Expr) -> exp.Expr:
    """Arrays are joined too, which DuckDB's does not."""
    mark, *rest = node.expressions
    arrays = (exp.ArrayAgg, exp.ArrayUniqueAgg, exp.ArraySort, exp.Array, exp.Split)
    if len(rest) == 1 and isinstance(rest[0], arrays):
        return _sql("coalesce(array_to_string(_1, _2), '')", rest[0], mark)
    if any(isinstance(each, arrays) for each in rest):
        raise refused("concat_ws of arrays and texts together")
    return node


# -- numbers -------------------------------------------------------------------------------------------------


def _sqrt(node: exp.Expr) -> exp.Expr:
    return _sql("CASE WHEN _1 < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt(_1) END", node.this)


def _ln(node: exp.Expr) -> exp.Expr:
    return _sql("CASE WHEN _1 > 0 THEN ln(_1) END", node.this)


def _log(node: exp.Expr) -> exp.Expr:
    if node.args.get("expression") is None:
        return _ln(node)
    return _sql("CASE WHEN _2 > 0 THEN ln(_2) / ln(_1) END", node.this, node.expression)


# -- times ---------------------------------------------------------------------------------------------------


def _as_date(node: exp.Expr) -> exp.Expr:
    return exp.Cast(this=node.copy(), to=exp.DataType.build("DATE"))


def _date_trunc(node: exp.Expr) -> exp.Expr:
    """`trunc(date, 'MM')`, which gives a date."""
    unit = _TRUNCATED.get(node.args["unit"].name.upper())
    if unit is None:
        raise refused(f"{node.sql(dialect='spark')} has a unit that is not constant or not known")
    return _sql(f"CAST(date_trunc('{unit}', CAST(_1 AS DATE)) AS DATE)", node.this)


def _months_between(node: exp.Expr) -> exp.Expr:
    """Whole months between the same days, or last days, of months; else 31 days are one."""
    later, earlier = (f"CAST({each} AS TIMESTAMP)" for each in ("_1", "_2"))
    months = f"((year({later}) - year({earlier})) * 12 + month({later}) - month({earlier}))"
    last = " AND ".join(f"day({each}) = day(last_day({each}))" for each in (later, earlier))
    seconds = " - ".join(
        f"(day({each}) * 86400 + epoch({each} - date_trunc('day', {each})))" for each in (later, earlier)
    )
    made = _sql(
        f"CASE WHEN day({later}) = day({earlier}) OR ({last}) THEN CAST({months} AS DOUBLE) "
        f"ELSE {months} + ({seconds}) / 2678400.0 END",
        node.this,
        node.expression,
    )
    exact = node.args.get("roundoff")
    if isinstance(exact, exp.Boolean) and not exact.this:
        return made
    return exp.Round(this=exp.Paren(this=made), decimals=exp.Literal.number(8))


def _day_of_week(node: exp.Expr) -> exp.Expr:
    return _sql("(dayofweek(CAST(_1 AS DATE)) + 1)", _plain_date(node.this))


def _extract(node: exp.Expr) -> exp.Expr:
    new = _part(node.name, node.expression)
    return node if new is None else new


def _part(unit: str, value: exp.Expr) -> exp.Expr | None:
    """A part of a time that has another name or value in DuckDB."""
    template = _PARTS.get(unit.upper())
    return None if template is None else _sql(template, value)


def _utc_to_local(node: exp.Expr) -> exp.Expr:
    """`from_utc_timestamp`: the time that clocks show in a zone, as if they were in that of the session."""
    return _sql("(CAST(_1 AS TIMESTAMPTZ) AT TIME ZONE _2) AT TIME ZONE 'UTC'", *_time_and_zone(node))


def _local_to_utc(node: exp.Expr) -> exp.Expr:
    return _sql("(CAST(_1 AS TIMESTAMPTZ) AT TIME ZONE 'UTC') AT TIME ZONE _2", *_time_and_zone(node))


def _time_and_zone(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    time = node.this
    return (time.this if isinstance(time, exp.Cast) else time), node.args["zone"]


def _convert_timezone(node: exp.Expr) -> exp.Expr:
    source = node.args.get("source_tz") or exp.Literal.string("UTC")
    given = node.args["timestamp"], source, node.args["target_tz"]
    return _sql("(CAST(_1 AS TIMESTAMP) AT TIME ZONE _2) AT TIME ZONE _3", *given)


def _times(node: exp.Expr) -> exp.Expr:
    """Microseconds, which DuckDB counts by 32 bits where an interval is multiplied."""
    interval = node.expression
    if not isinstance(interval, exp.Interval) or interval.this.name != "0.000001":
        return node
    return _sql("to_microseconds(CAST(_1 AS BIGINT))", node.this)


def _difference(node: exp.Expr) -> exp.Expr:
    """Whole units between two times; without a unit, days between two dates."""
    unit = node.args.get("unit")
    if unit is None:
        return node
    later, earlier = _plain_date(node.this), _plain_date(node.expression)
    name = unit.name.lower()
    return _sql(f"date_sub('{name}', CAST(_1 AS TIMESTAMP), CAST(_2 AS TIMESTAMP))", earlier, later)


def _plain_date(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.TsOrDsToDate) else node


def _unix_timestamp(node: exp.Expr) -> exp.Expr:
    pattern = node.args.get("format")
    if pattern is not None and pattern.name.replace("strict", "") != "%Y-%m-%d %H:%M:%S":
        return node
    return _sql("CAST(floor(epoch(CAST(_1 AS TIMESTAMPTZ))) AS BIGINT)", node.this)


# -- arrays --------------------------------------------------------------------------------------------------


def _array_contains(node: exp.Expr) -> exp.Expr:
    return _sql(
        "CASE WHEN _1 IS NULL OR _2 IS NULL THEN NULL WHEN list_contains(_1, _2) THEN true "
        "WHEN len(_1) > list_count(_1) THEN NULL ELSE false END",
        node.this,
        node.expression,
    )


def _array_position(node: exp.Expr) -> exp.Expr:
    return _sql(
        "CASE WHEN _1 IS NOT NULL AND _2 IS NOT NULL THEN coalesce(list_position(_1, _2), 0) END",
        node.this,
        node.expression,
    )


def _array_remove(node: exp.Expr) -> exp.Expr:
    """What is NULL stays, unlike with DuckDB's comparison."""
    return _sql(
        "CASE WHEN _2 IS NOT NULL THEN list_filter(_1, _hw_each -> _hw_each IS DISTINCT FROM _2) END",
        node.this,
        node.expression,
    )


def _sequence(node: exp.Expr) -> exp.Expr:
    """Without a step it may go down."""
    if node.args.get("step") is not None:
        return node
    template = "generate_series(_1, _2, CASE WHEN _1 <= _2 THEN 1 ELSE -1 END)"
    return _sql(template, node.args["start"], node.args["end"])


def _lambda(node: exp.Expr) -> exp.Expr:
    if len(node.expressions) > 1 and isinstance(node.parent, (exp.ArrayFilter, exp.Transform)):
        raise refused("places of elements are counted from 0 in Spark and from 1 in DuckDB")
    return node


def _json_path(node: exp.Expr) -> exp.Expr:
    path = node.expression
    if path.find(exp.JSONPathWildcard) is not None:
        raise refused("get_json_object with * gives a text, and a list in DuckDB")
    return node


def _posexplode_outer(node: exp.Expr) -> exp.Expr:
    if not isinstance(node.parent, exp.Lateral):
        raise refused("posexplode_outer keeps rows without elements")
    return node


def _lateral(node: exp.Expr) -> exp.Expr:
    """LATERAL VIEW OUTER keeps rows without elements, which sqlglot would drop without a word."""
    call = node.this
    if not isinstance(call, exp.Explode) or isinstance(call, exp.ExplodeOuter | exp.PosexplodeOuter):
        if node.args.get("outer") or isinstance(call, exp.ExplodeOuter):
            raise refused(f"{node.sql(dialect='spark').strip()} keeps rows without elements")
        return node
    outer = bool(node.args.get("outer"))
    alias = node.args.get("alias")
    if outer and isinstance(call, exp.Posexplode):
        raise refused(f"{node.sql(dialect='spark').strip()} keeps rows without elements")
    if isinstance(call, exp.Posexplode) or (alias is not None and len(alias.args.get("columns") or []) > 1):
        return node
    if not outer and node.args.get("view"):
        return node
    elements = _kept(call.this) if outer else call.this.copy()
    if node.args.get("view"):
        new = node.copy()
        new.set("outer", False)
        new.this.set("this", elements)
        return new
    return exp.Unnest(expressions=[elements], alias=None if alias is None else alias.copy())


def _explode_outer(node: exp.Expr) -> exp.Expr:
    return node if isinstance(node.parent, exp.Lateral) else _sql("unnest(_1)", _kept(node.this))


def _kept(elements: exp.Expr) -> exp.Expr:
    return _sql("CASE WHEN coalesce(len(_1), 0) = 0 THEN [NULL] ELSE _1 END", elements)


# -- aggregates ----------------------------------------------------------------------------------------------


def _count(node: exp.Expr) -> exp.Expr:
    """Rows in which none of several values is NULL."""
    rest = node.expressions
    if not rest or isinstance(node.this, exp.Distinct):
        return node
    given = [node.this, *rest]
    condition = " AND ".join(f"_{number + 1} IS NOT NULL" for number in range(len(given)))
    return _sql(f"count(CASE WHEN {condition} THEN 1 END)", *given)


def _count_if(node: exp.Expr) -> exp.Expr:
    """For no rows DuckDB's own gives NULL."""
    return _sql("count(CASE WHEN _1 THEN 1 END)", node.this)


def _any(node: exp.Expr) -> exp.Expr:
    comparing = isinstance(node.parent, (exp.Binary, exp.Like, exp.ILike))
    if comparing or not isinstance(node.this, exp.Paren) or isinstance(node.this.this, exp.Query):
        return node
    return _sql("bool_or(_1)", node.this.this)


def _first_value(node: exp.Expr) -> exp.Expr:
    """As an aggregate it is `first`."""
    around = node.parent
    while isinstance(around, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
        around = around.parent
    if isinstance(around, exp.Window):
        return node
    return _sql(f"{'first' if isinstance(node, exp.FirstValue) else 'last'}(_1)", node.this)


def _quantile(node: exp.Expr) -> exp.Expr:
    """Spark interpolates, in doubles."""
    if node.args.get("expression") is not None:
        raise refused("percentile with frequencies")
    return _sql("quantile_cont(CAST(_1 AS DOUBLE), _2)", node.this, node.args["quantile"])


def _median(node: exp.Expr) -> exp.Expr:
    return _sql("median(CAST(_1 AS DOUBLE))", node.this)


def _within_group(node: exp.Expr) -> exp.Expr:
    if not isinstance(node.this, exp.PercentileCont):
        return node
    ordered = node.expression.expressions[0]
    share = node.this.this if not ordered.args.get("desc") else _sql("(1 - _1)", node.this.this)
    return _sql("quantile_cont(CAST(_1 AS DOUBLE), _2)", ordered.this, share)


def _group_concat(node: exp.Expr) -> exp.Expr:
    """Nothing stands between the values unless something is named."""
    if node.args.get("separator") is None:
        node.set("separator", exp.Literal.string(""))
    return node


def _extreme(node: exp.Expr) -> exp.Expr:
    """The greatest or least of structs: NULL in a field is the least for Spark, the greatest in DuckDB."""
    if not isinstance(node.this, exp.Struct):
        return node
    called = "arg_max" if isinstance(node, exp.Max) else "arg_min"
    return _sql(f"{called}(_1, _2)", node.this, _nulls_first(node.this))


def _extreme_by(node: exp.Expr) -> exp.Expr:
    if isinstance(node.expression, exp.Struct):
        node.set("expression", _nulls_first(node.expression))
    return node


def _nulls_first(struct: exp.Expr) -> exp.Expr:
    """A struct that DuckDB orders as Spark orders another."""
    fields = []
    for place, each in enumerate(struct.expressions):
        value = each.expression if isinstance(each, exp.PropertyEQ) else each
        told = exp.Not(this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()))
        for name, made in ((f"n{place}", told), (f"v{place}", value.copy())):
            fields.append(exp.PropertyEQ(this=exp.to_identifier(name), expression=made))
    return exp.Struct(expressions=fields)


def _kurtosis(node: exp.Expr) -> exp.Expr:
    return _sql("kurtosis_pop(_1)", node.this)


def _collect(tree: exp.Expr) -> None:
    """An array of nothing is empty in Spark, and NULL in DuckDB."""
    for call in list(tree.find_all(exp.ArrayAgg, exp.ArrayUniqueAgg)):
        whole: exp.Expr = call
        while isinstance(whole.parent, _AROUND) and whole.parent.this is whole:
            whole = whole.parent
        if whole.parent is not None:
            whole.replace(exp.Coalesce(this=whole.copy(), expressions=[exp.Array(expressions=[])]))


def _is_nan(node: exp.Expr) -> exp.Expr:
    return _sql("coalesce(isnan(_1), false)", node.this)


# -- clauses -------------------------------------------------------------------------------------------------


def _group(node: exp.Expr) -> exp.Expr:
    """GROUP BY a, b WITH ROLLUP and GROUP BY a, b GROUPING SETS (…), as the standard writes them."""
    plain = node.expressions
    for kind in ("rollup", "cube"):
        for each in node.args.get(kind) or []:
            if not each.expressions:
                each.set("expressions", [value.copy() for value in plain])
                node.set("expressions", [each.copy()])
                node.set(kind, None)
    sets = node.args.get("grouping_sets")
    if sets and plain:
        node.set("expressions", [each.copy() for each in sets])
        node.set("grouping_sets", None)
    return node


def _grouping_id(node: exp.Expr) -> exp.Expr:
    if node.expressions:
        return node
    select = node.find_ancestor(exp.Select)
    group = None if select is None else select.args.get("group")
    given: Sequence[exp.Expr] = () if group is None else _group_values(group)
    return exp.GroupingId(expressions=[value.copy() for value in given])


def _group_values(group: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    for each in group.expressions:
        found += each.expressions if isinstance(each, (exp.Rollup, exp.Cube)) else [each]
    if any(isinstance(each, exp.GroupingSets) for each in found):
        raise refused("grouping_id() over GROUPING SETS without its columns")
    return found


def _values(node: exp.Expr) -> exp.Expr:
    """Columns of VALUES are col1, col2, … in Spark, and col0, col1, … in DuckDB."""
    first = node.expressions[0]
    count = len(first.expressions) if isinstance(first, exp.Tuple) else 1
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return node
    called = exp.to_identifier("_values") if alias is None else alias.this.copy()
    names = [exp.to_identifier(f"col{place + 1}") for place in range(count)]
    new = node.copy()
    new.set("alias", exp.TableAlias(this=called, columns=names))
    return new


def _select(node: exp.Expr) -> exp.Expr:
    node.set("hint", None)
    return node


_PARTS = {
    **dict.fromkeys(("DOW", "DAYOFWEEK"), "(dayofweek(_1) + 1)"),
    **dict.fromkeys(("DOW_ISO", "DAYOFWEEK_ISO"), "isodow(_1)"),
    "YEAROFWEEK": "isoyear(_1)",
    # With what is below a second.
    **dict.fromkeys(("SECOND", "SECONDS", "SEC", "SECS", "S"), "(date_part('microseconds', _1) / 1000000)"),
}
_RULES: dict[type[exp.Expr], Rule] = {
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Substring: _substring,
    exp.SubstringIndex: _substring_index,
    exp.Like: _like,
    exp.ILike: _like,
    exp.ConcatWs: _concat_ws,
    exp.Sqrt: _sqrt,
    exp.Ln: _ln,
    exp.Log: _log,
    exp.IsNan: _is_nan,
    exp.TsOrDsAdd: _as_date,
    exp.AddMonths: _as_date,
    exp.NextDay: _as_date,
    exp.DateTrunc: _date_trunc,
    exp.MonthsBetween: _months_between,
    exp.DayOfWeek: _day_of_week,
    exp.Extract: _extract,
    exp.Mul: _times,
    exp.AtTimeZone: _utc_to_local,
    exp.FromTimeZone: _local_to_utc,
    exp.ConvertTimezone: _convert_timezone,
    exp.ArrayRemove: _array_remove,
    exp.GenerateSeries: _sequence,
    exp.Lambda: _lambda,
    exp.JSONExtractScalar: _json_path,
    exp.PosexplodeOuter: _posexplode_outer,
    exp.GroupConcat: _group_concat,
    exp.Max: _extreme,
    exp.Min: _extreme,
    exp.ArgMax: _extreme_by,
    exp.ArgMin: _extreme_by,
    exp.TimestampDiff: _difference,
    exp.DateDiff: _difference,
    exp.StrToUnix: _unix_timestamp,
    exp.ArrayContains: _array_contains,
    exp.ArrayPosition: _array_position,
    exp.Lateral: _lateral,
    exp.ExplodeOuter: _explode_outer,
    exp.Count: _count,
    exp.CountIf: _count_if,
    exp.Any: _any,
    exp.FirstValue: _first_value,
    exp.LastValue: _first_value,
    exp.Quantile: _quantile,
    exp.Median: _median,
    exp.WithinGroup: _within_group,
    exp.Kurtosis: _kurtosis,
    exp.Group: _group,
    exp.GroupingId: _grouping_id,
    exp.Values: _values,
    exp.Select: _select,
}
