"""What kind of function a call is: aggregate, generator, of the current time, of chance.

sqlglot has classes for the functions it knows; the others are known here by the name that Spark gives them.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

_AGGREGATES = frozenset(
    {
        *("some", "every", "any", "mean", "std", "try_sum", "try_avg", "histogram_numeric", "product"),
        *("percentile", "percentile_cont", "percentile_disc", "approx_percentile", "percentile_approx"),
        *("bool_and", "bool_or", "bit_and", "bit_or", "bit_xor", "mode", "median", "listagg", "string_agg"),
        *("max_by", "min_by", "first", "last", "any_value", "collect_list", "collect_set", "array_agg"),
        *("bitmap_and_agg", "bitmap_or_agg", "bitmap_construct_agg", "hll_sketch_agg", "hll_union_agg"),
        *("approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine", "count_min_sketch"),
        *("theta_sketch_agg", "theta_union_agg", "theta_intersection_agg", "schema_of_variant_agg"),
        *("kll_sketch_agg_bigint", "kll_sketch_agg_float", "kll_sketch_agg_double"),
        *("kll_merge_agg_bigint", "kll_merge_agg_float", "kll_merge_agg_double"),
        *("regr_r2", "regr_count", "var_pop", "var_samp", "variance", "stddev", "stddev_pop", "stddev_samp"),
        *("covar_pop", "covar_samp", "corr", "skewness", "kurtosis", "count_if", "sum", "avg", "min", "max"),
        *("count", "vector_sum", "vector_avg"),
    }
)
#: Functions that need OVER, although sqlglot counts them among the aggregates.
_ONLY_WINDOW = (
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
    *(exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue),
)
_CHANCE_NAMES = frozenset(
    {
        *("rand", "randn", "random", "uuid", "shuffle", "randstr", "uniform", "monotonically_increasing_id"),
        *("spark_partition_id", "input_file_name", "input_file_block_start", "input_file_block_length"),
        *("reflect", "java_method", "try_reflect"),
    }
)
_CHANCE = (exp.Rand, exp.Randn, exp.Uuid, exp.Shuffle, exp.Randstr, exp.Uniform)
_NOW = (exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp)
_GENERATORS = frozenset(
    {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack"}
)
_OTHER_GENERATORS = frozenset(
    ["json_tuple", "variant_explode", "variant_explode_outer", "collations", "sql_keywords"]
)
#: Around an aggregate: FILTER, WITHIN GROUP, IGNORE NULLS.
WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


def function_name(node: exp.Expr) -> str:
    """The name of a function that sqlglot has no class for, in lower case; else nothing."""
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node is the call of an aggregate function, with what belongs to it."""
    while isinstance(node, WRAPPERS):
        node = node.this
    if isinstance(node, (exp.Grouping, exp.GroupingId)):
        return False
    if isinstance(node, exp.Any):
        return isinstance(node.this, exp.Paren) and not isinstance(node.parent, (exp.Binary, exp.Like))
    if isinstance(node, _ONLY_WINDOW):
        return False
    return isinstance(node, exp.AggFunc) or function_name(node) in _AGGREGATES


def is_only_window(node: exp.Expr) -> bool:
    """Whether the function means something only with OVER."""
    while isinstance(node, WRAPPERS):
        node = node.this
    return isinstance(node, _ONLY_WINDOW)


def is_generator(node: exp.Expr) -> bool:
    """Whether the call makes rows."""
    known = isinstance(node, (exp.Explode, exp.Inline, exp.Stack))
    return known or function_name(node) in _GENERATORS | _OTHER_GENERATORS


def is_chance(node: exp.Expr) -> bool:
    """Whether the call gives something else each time."""
    if function_name(node) == "aes_encrypt":  # with a random start, unless one is given
        mode = node.expressions[2].name.upper() if len(node.expressions) > 2 else ""
        return len(node.expressions) < 5 and mode != "ECB"
    return isinstance(node, _CHANCE) or function_name(node) in _CHANCE_NAMES


def is_now(node: exp.Expr) -> bool:
    """Whether the call tells the current time."""
    return isinstance(node, _NOW) or is_time_of_day(node) or function_name(node) in {"now", "localtimestamp"}


def is_time_of_day(node: exp.Expr) -> bool:
    """Whether the call tells the current time without a date, which comes again each day."""
    return isinstance(node, (exp.CurrentTime, exp.Localtime))


def has_now(node: exp.Expr) -> bool:
    """Whether the current time is spoken of."""
    return any(is_now(found) for found in node.walk())


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """The node and all below it, except what belongs to subqueries."""
    if isinstance(node, exp.Query):
        return
    yield node
    for child in node.iter_expressions():
        yield from own_nodes(child)


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Calls of aggregate functions; not those that OVER makes window functions."""
    if isinstance(node, exp.Query):
        return
    if isinstance(node, exp.Window):
        call = node.this
        while isinstance(call, WRAPPERS):
            if isinstance(call, exp.Filter):
                yield from aggregates_in(call.expression)
            call = call.this
        children = [*call.iter_expressions()]
        children += [child for child in node.iter_expressions() if child is not node.this]
    elif is_aggregate(node):
        yield node
        return
    else:
        children = list(node.iter_expressions())
    for child in children:
        yield from aggregates_in(child)


def is_constant(node: exp.Expr) -> bool:
    """Whether the value is the same for all rows."""
    varying = (exp.Column, exp.Query, exp.Window, exp.Star)
    return not any(isinstance(found, varying) or is_chance(found) or is_now(found) for found in node.walk())


def value_of_nothing(call: exp.Expr) -> exp.Expr | None:
    """What an aggregate gives for no rows, if that is not NULL."""
    while isinstance(call, WRAPPERS):
        call = call.this
    if isinstance(call, (exp.Count, exp.CountIf, exp.ApproxDistinct, exp.RegrCount)):
        return exp.Literal.number(0)
    if isinstance(call, (exp.ArrayAgg, exp.ArrayUniqueAgg)):
        return exp.Array(expressions=[])
    return None


#: Aggregates whose result for no rows is a value that cannot be written down.
_SKETCHES = frozenset(["count_min_sketch", "hll_sketch_agg", "bitmap_construct_agg", "histogram_numeric"])


def is_sketch(call: exp.Expr) -> bool:
    """Whether no rows give something that is neither NULL nor a plain constant."""
    while isinstance(call, WRAPPERS):
        call = call.this
    return function_name(call) in _SKETCHES or isinstance(call, exp.BitmapConstructAgg)
