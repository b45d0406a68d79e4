"""The SELECT list: stars written out, and a name for every column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.algebra.building.places import NoRuleError, nearest
from headwater.algebra.building.resolving import Resolver, rebuilt
from headwater.algebra.building.scopes import AmbiguousError, Visible

if TYPE_CHECKING:
    from headwater.algebra.building.selects import Block


@dataclass(frozen=True)
class Output:
    """An item of the SELECT list: its expression as written, without the alias, and its name."""

    node: exp.Expr
    name: str
    #: The name, if the query gives one by AS: other items may then use it.
    alias: str | None = None
    #: The names given to the columns of a generator.
    names: tuple[str, ...] = ()


def listed(block: Block) -> list[Output]:
    """The items of the SELECT list, stars written out."""
    outputs: list[Output] = []
    for item in block.select.expressions:
        star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
        if isinstance(star, exp.Star):
            outputs += _star(block, item, star)
        elif isinstance(item, exp.Alias):
            name = item.alias
            outputs.append(Output(item.this, name, name, (name,)))
        elif isinstance(item, exp.Aliases):
            outputs.append(Output(item.this, "", None, tuple(one.name for one in item.expressions)))
        else:
            outputs.append(Output(item, output_name(item)))
    return outputs


def output_name(item: exp.Expr) -> str:
    """The name of a column that the query does not name: its text, as Spark does it."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return item.name
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Identifier):
        return item.expression.name
    if isinstance(item, exp.Paren):
        return output_name(item.this)
    if isinstance(item, exp.Cast) and not isinstance(item.this, exp.Literal):
        return output_name(item.this)
    return _text(item).sql(dialect="spark", normalize_functions="lower", comments=False)


def _text(item: exp.Expr) -> exp.Expr:
    """The expression as Spark would write it: operators in parentheses, texts without quotes."""

    if isinstance(item, exp.Literal):
        return exp.Var(this=item.name)
    if isinstance(item, exp.Count) and isinstance(item.this, exp.Star):
        return exp.Count(this=exp.Literal.number(1))
    if isinstance(item, exp.Query):
        return item.copy()
    written = rebuilt(item, _text)
    operator = isinstance(item, (exp.Binary, exp.Not, exp.In)) and not isinstance(
        item, (exp.Func, exp.Like, exp.ILike, exp.RegexpLike, exp.Dot)
    )
    return exp.Paren(this=written) if operator and not isinstance(item.parent, exp.Paren) else written


def _star(block: Block, item: exp.Expr, star: exp.Star) -> list[Output]:
    qualifier = tuple(part.name for part in item.parts[:-1]) if isinstance(item, exp.Column) else ()
    if star.args.get("replace") or star.args.get("rename"):
        raise NoRuleError("A star with REPLACE or RENAME has no rule.")
    shown = block.scope.star(qualifier)
    fields: list[Output] | None = None
    if qualifier and not shown:
        fields = _fields(block, item, qualifier)
    if fields is None and not shown:
        raise block.context.error(
            item,
            f"There is no table `{'.'.join(qualifier)}` here." if qualifier else "`*` has nothing to show.",
            hint=nearest(qualifier[-1], {one.qualifier[-1] for one in block.scope.columns if one.qualifier})
            if qualifier
            else "Name the columns.",
        )
    outputs = fields if fields is not None else [_shown(block, star, one) for one in shown]
    for left_out in star.args.get("except_") or ():
        name = left_out.name
        kept = [one for one in outputs if one.name.lower() != name.lower()]
        if len(kept) == len(outputs):
            raise block.context.error(
                left_out, f"EXCEPT ({name}): there is no such column.", hint=nearest(name, _names(outputs))
            )
        outputs = kept
    return outputs


def _names(outputs: list[Output]) -> list[str]:
    return [one.name for one in outputs]


def _shown(block: Resolver, star: exp.Expr, visible: Visible) -> Output:
    node = exp.Column(this=exp.to_identifier(visible.name, quoted=True))
    node.meta.update(star.meta)
    block.starred[id(node)] = visible
    return Output(node, visible.name)


def _fields(block: Resolver, item: exp.Expr, parts: tuple[str, ...]) -> list[Output] | None:
    """`s.*` of a struct."""
    try:
        found = block.scope.find(parts)
    except AmbiguousError:
        return None
    if found is None or found[1] < len(parts):
        return None
    try:
        kind = exp.DataType.build(found[0].type or "", dialect="spark")
    except (SqlglotError, ValueError):
        return None
    if not kind.is_type(exp.DType.STRUCT):
        return None
    outputs = []
    for field in kind.expressions:
        start = _shown(block, item.this, found[0]).node
        node = exp.Dot(this=start, expression=exp.to_identifier(field.name, quoted=True))
        outputs.append(Output(node, field.name))
    return outputs
