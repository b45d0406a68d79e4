"""Window functions: one Window for each set of partition columns, one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.algebra.building.functions import WRAPPERS, function_name, is_constant, own_nodes
from headwater.algebra.building.grouping import normal_call
from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.resolving import bare, rebuilt
from headwater.algebra.relations import Window, column

if TYPE_CHECKING:
    from headwater.algebra.building.selects import Block


def add_windows(block: Block, outputs: Sequence[tuple[exp.Expr, dict[str, exp.Expr]]]) -> None:
    """Compute the window functions in expressions; each comes with the aliases it may use."""
    named = {one.this.name.lower(): one for one in block.select.args.get("windows") or ()}
    made: dict[frozenset[str], list[tuple[str, exp.Expr]]] = {}
    partitions: dict[frozenset[str], tuple[str, ...]] = {}
    for output, aliases in outputs:
        for node in own_nodes(output):
            if not isinstance(node, exp.Window) or id(node) in block.replaced:
                continue
            if block.correlated:
                raise NoRuleError("A correlated subquery has window functions.")
            block.aliases = aliases
            partition, call = _window(block, node, named)
            group = frozenset(partition)
            partitions.setdefault(group, partition)
            block.replaced[id(node)] = column(_add(block, made.setdefault(group, []), call, node))
    block.flush()
    for group, functions in made.items():
        block.relation = Window(block.relation, partitions[group], tuple(functions))


def _window(block: Block, node: exp.Window, named: dict[str, exp.Expr]) -> tuple[tuple[str, ...], exp.Expr]:
    parts = dict(node.args)
    reference = parts.get("alias")
    if reference is not None:
        definition = named.get(reference.name.lower())
        if definition is None:
            raise block.context.error(reference, f"There is no window `{reference.name}`.")
        for part in ("partition_by", "order", "spec"):
            parts[part] = parts.get(part) or definition.args.get(part)
    partition: list[str] = []
    for one in parts.get("partition_by") or ():
        value = block.without_now(one)
        if not is_constant(value):
            partition.append(block.as_column(bare(value), "partition"))
    columns = tuple(dict.fromkeys(partition))
    order, spec = parts.get("order"), parts.get("spec")
    call = exp.Window(
        this=_function(block, node.this),
        partition_by=[column(name) for name in columns],
        order=None if order is None else rebuilt(order, block.without_now),
        spec=None if spec is None else spec.copy(),
        over="OVER",
    )
    if any(name in block.outer_columns for name in _names(call)):
        raise NoRuleError("A window function speaks of the query around it.")
    return columns, call


def _names(call: exp.Expr) -> list[str]:
    return [found.name for found in call.find_all(exp.Column)]


def _function(block: Block, call: exp.Expr) -> exp.Expr:
    if isinstance(call, WRAPPERS):
        inner = call.this
        return rebuilt(
            call, lambda part: _function(block, part) if part is inner else block.without_now(part)
        )
    return normal_call(rebuilt(call, block.without_now))


def _add(block: Block, made: list[tuple[str, exp.Expr]], call: exp.Expr, node: exp.Expr) -> str:
    for name, known in made:
        if known == call:
            return name
    alias = node.parent.alias if isinstance(node.parent, exp.Alias) else ""
    inner = node.this
    while isinstance(inner, WRAPPERS):
        inner = inner.this
    name = block.context.names.fresh(alias or function_name(inner) or inner.key)
    made.append((name, call))
    return name
