"""Expressions as written → expressions over the columns of the algebra.

A resolver knows what names mean at one point of a SELECT and holds the relation made so far. Subqueries in an
expression become joins of that relation, and the expression speaks of the columns they add.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sqlglot import exp

from headwater.algebra.building.context import Context
from headwater.algebra.building.faithful import faithful
from headwater.algebra.building.functions import (
    function_name,
    is_aggregate,
    is_chance,
    is_generator,
    is_now,
    is_only_window,
    is_time_of_day,
)
from headwater.algebra.building.places import NoRuleError, nearest
from headwater.algebra.building.scopes import AmbiguousError, Around, Scope, Visible
from headwater.algebra.relations import Project, Relation, column, columns_of

#: Parts of expressions that mean the same everywhere.
_FIXED = (exp.Identifier, exp.Literal, exp.DataType, exp.Var, exp.Null, exp.Boolean, exp.Star)
#: Spark takes these names for the functions where no column has them.
_NOW_WITHOUT_PARENTHESES: dict[str, type[exp.Expr]] = {
    "localtimestamp": exp.Localtimestamp,
    "current_time": exp.CurrentTime,
    "localtime": exp.Localtime,
}


class Subqueries(Protocol):
    """What makes joins of the subqueries in an expression."""

    def __call__(self, resolver: Resolver, node: exp.Expr) -> exp.Expr | None:
        """The expression in place of the subquery; None if the node is none."""


class Resolver:
    """Resolves the expressions of one SELECT."""

    def __init__(self, context: Context, around: Around, subqueries: Subqueries):
        self.context = context
        self.around = around
        self.relation: Relation
        self.scope = Scope()
        #: Names inside the algebra of columns that belong to the query around this one.
        self.outer_columns: set[str] = set()
        #: Conditions that speak of the query around this one.
        self.correlated: list[exp.Expr] = []
        #: What stands for parts of the text: results of aggregates, windows and generators.
        self.replaced: dict[int, exp.Expr] = {}
        #: After grouping: (expression over the rows that were grouped, its column now).
        self.groups: list[tuple[exp.Expr, str]] | None = None
        #: Names that the SELECT gives to expressions, where they can be used.
        self.aliases: dict[str, exp.Expr] = {}
        self.aliases_first = False
        #: Whether a name of the SELECT takes the place of a column that is not grouped, as in HAVING.
        self.aliases_instead = False
        #: Whether the current time may be spoken of.
        self.now_allowed = False
        #: Subqueries whose missing value makes the condition around them fail.
        self.needed: set[int] = set()
        #: Columns that a star stands for.
        self.starred: dict[int, Visible] = {}
        self.subqueries = subqueries
        self._pending: list[tuple[str, exp.Expr]] = []
        self._of_alias: dict[int, exp.Expr] = {}
        self._in_alias: list[int] = []

    # -- columns to compute --------------------------------------------------------------------------

    def as_column(self, value: exp.Expr, wanted: str) -> str:
        """The name of a column that has the value of the expression, after `flush`."""
        while isinstance(value, exp.Paren):
            value = value.this
        if isinstance(value, exp.Column) and value.name not in self.outer_columns:
            return value.name
        if columns_of(value) & self.outer_columns:
            raise NoRuleError("An expression mixes columns of a subquery with those around it.")
        for name, known in self._pending:
            if known == value:
                return name
        name = self.context.names.fresh(wanted)
        self._pending.append((name, value))
        return name

    def flush(self) -> None:
        """Add the columns asked for to the relation."""
        if self._pending:
            kept = tuple((name, column(name)) for name in self.relation.columns)
            self.relation = Project(self.relation, kept + tuple(self._pending))
            self._pending = []

    # -- expressions ---------------------------------------------------------------------------------

    def resolve(self, node: exp.Expr) -> exp.Expr:
        """The expression over columns of the algebra."""
        known = self.replaced.get(id(node))
        if known is not None:
            return known.copy()
        if isinstance(node, _FIXED):
            return node.copy()
        if self.groups is not None:
            group = self._group_of(node)
            if group is not None:
                return group
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Dot):
            whole = self._dotted(node)
            if whole is not None:
                return whole
        joined = self.subqueries(self, node)
        if joined is not None:
            return joined
        self._check(node)
        return rebuilt(node, self.resolve)

    def without_now(self, node: exp.Expr) -> exp.Expr:
        """Resolve an expression in a place that knows no current time."""
        allowed, self.now_allowed = self.now_allowed, False
        try:
            return self.resolve(node)
        finally:
            self.now_allowed = allowed

    def _check(self, node: exp.Expr) -> None:
        context = self.context
        if is_chance(node):
            refuse_chance(context, node)
        if is_now(node) and (not self.now_allowed or is_time_of_day(node)):
            refuse_now(context, node)
        if isinstance(node, exp.Window) or is_only_window(node):
            raise context.error(
                node,
                "A window function cannot stand here.",
                why="Window functions are computed after WHERE, GROUP BY and HAVING.",
                hint="Compute it in the SELECT list of a subquery, or use QUALIFY.",
            )
        if is_aggregate(node):
            raise context.error(
                node,
                "An aggregate function cannot stand here.",
                why="Aggregates are computed after WHERE, ON and GROUP BY, and not inside one another.",
                hint="Put a condition on an aggregate into HAVING, or compute it in a subquery.",
            )
        if isinstance(node, (exp.Grouping, exp.GroupingId)):
            raise context.error(
                node, "grouping() needs GROUPING SETS, ROLLUP or CUBE.", hint="Use it in SELECT or HAVING."
            )
        if is_generator(node):
            raise context.error(
                node,
                "A function that makes rows cannot stand inside another expression.",
                hint="Use LATERAL VIEW, or let it be an item of SELECT by itself.",
            )
        if isinstance(node, exp.Placeholder):
            raise context.error(node, "A parameter has no value.", hint="Write the value into the query.")
        if isinstance(node, (exp.QueryTransform, exp.Aliases)):
            raise NoRuleError("SELECT TRANSFORM runs a script.")

    # -- names ---------------------------------------------------------------------------------------

    def _find(self, node: exp.Expr, parts: tuple[str, ...]) -> tuple[Visible, int] | None:
        starred = self.starred.get(id(node))
        return self.scope.find(parts) if starred is None else (starred, 1)

    def _column(self, node: exp.Column) -> exp.Expr:
        parts = tuple(part.name for part in node.parts)
        if len(parts) == 1 and self.aliases_first and parts[0].lower() in self.aliases:
            return self._alias(parts[0].lower())
        try:
            found = self._find(node, parts)
        except AmbiguousError as error:
            raise self._ambiguous(node, error) from None
        if found is not None:
            return self._visible(node, found[0], parts[found[1] :])
        if parts[0].lower() in self.aliases:
            return _with_fields(self._alias(parts[0].lower()), parts[1:])
        if len(parts) == 1 and (called := _NOW_WITHOUT_PARENTHESES.get(parts[0].lower())) is not None:
            return self.resolve(_like(called(), node))
        outside = self._outside(node)
        if outside is None:
            raise self._unknown(node, parts)
        return outside

    def _visible(self, node: exp.Expr, found: Visible, fields: tuple[str, ...]) -> exp.Expr:
        if self.groups is not None:
            if self.aliases_instead and not fields and found.name.lower() in self.aliases:
                return self._alias(found.name.lower())
            for known, name in self.groups:
                if fields and known == column(found.internal):
                    return _with_fields(column(name), fields)
            raise self.context.error(
                node,
                f"The column `{found.name}` is neither grouped nor aggregated.",
                why="After GROUP BY, or beside an aggregate function, there is one row per group.",
                hint=f"Add `{found.name}` to GROUP BY, or take one of its values, as in max({found.name}).",
            )
        return _with_fields(column(found.internal), fields)

    def _outside(self, node: exp.Expr) -> exp.Expr | None:
        """What the name means in the query around this one."""
        outer = self.around.outer
        if outer is None:
            return None
        if not outer.knows(node):
            return None
        value = outer.without_now(node)
        self.outer_columns |= columns_of(value)
        return value

    def knows(self, node: exp.Expr) -> bool:
        """Whether a name means something here or further out."""
        parts = _parts(node)
        if parts is None:
            return False
        try:
            found = self.scope.find(parts)
        except AmbiguousError:
            return True
        if found is not None:
            return True
        return self.around.outer is not None and self.around.outer.knows(node)

    def _dotted(self, node: exp.Dot) -> exp.Expr | None:
        """More names than sqlglot gives to a column: a.b.c.d.e."""
        parts = _parts(node)
        if parts is None:
            return None
        try:
            found = self.scope.find(parts)
        except AmbiguousError as error:
            raise self._ambiguous(node, error) from None
        if found is not None:
            return self._visible(node, found[0], parts[found[1] :])
        return self._outside(node)

    def _alias(self, name: str) -> exp.Expr:
        item = self.aliases[name]
        if id(item) not in self._of_alias:
            if id(item) in self._in_alias:
                raise self.context.error(item, f"The name `{name}` is defined by itself.")
            self._in_alias.append(id(item))
            modes = self.aliases_first, self.aliases_instead
            self.aliases_first = self.aliases_instead = False
            try:
                self._of_alias[id(item)] = self.resolve(item)
            finally:
                self.aliases_first, self.aliases_instead = modes
                self._in_alias.pop()
        return grouped(self._of_alias[id(item)])

    def forget_aliases(self) -> None:
        """After grouping, names of the SELECT mean other expressions than before."""
        self._of_alias = {}

    def _group_of(self, node: exp.Expr) -> exp.Expr | None:
        """The group column that an expression over the ungrouped rows is."""
        groups = self.groups
        if not groups or isinstance(node, exp.Paren) or not self._over_rows(node):
            return None
        self.groups, aliases, self.aliases = None, self.aliases, {}
        try:
            value = bare(self.resolve(node))
        finally:
            self.groups, self.aliases = groups, aliases
        for known, name in groups:
            if known == value:
                return column(name)
        return None

    def _over_rows(self, node: exp.Expr) -> bool:
        """Whether all names in the expression are those of the rows that were grouped, and it is simple."""
        for part in node.walk():
            if isinstance(part, (exp.Query, exp.Window)) or id(part) in self.replaced:
                return False
            if is_aggregate(part) or is_generator(part) or is_now(part) or is_only_window(part):
                return False
            if isinstance(part, (exp.Grouping, exp.GroupingId, exp.Placeholder)):
                return False
            if isinstance(part, exp.Column):
                try:
                    if self._find(part, tuple(one.name for one in part.parts)) is None:
                        return False
                except AmbiguousError:
                    return False
        return True

    # -- errors --------------------------------------------------------------------------------------

    def _ambiguous(self, node: exp.Expr, error: AmbiguousError) -> Exception:
        tables = [".".join(one.qualifier) for one in error.found if one.qualifier]
        choices = " or ".join(f"`{table}.{error.found[0].name}`" for table in dict.fromkeys(tables))
        return self.context.error(
            node,
            f"The column `{error.found[0].name}` is ambiguous.",
            why=f"{len(error.found)} columns have that name.",
            hint=f"Write {choices}." if len(set(tables)) > 1 else "Give the columns different names.",
        )

    def _unknown(self, node: exp.Column, parts: tuple[str, ...]) -> Exception:
        wanted = parts[-1]
        if len(parts) > 1:
            inside = self.scope.star(parts[:-1])
            if inside:
                return self.context.error(
                    node,
                    f"`{'.'.join(parts[:-1])}` has no column `{wanted}`.",
                    hint=nearest(wanted, (one.name for one in inside)),
                )
            tables = {one.qualifier[-1] for one in self.scope.columns if one.qualifier}
            hint = nearest(parts[-2], tables)
        else:
            hint = nearest(wanted, [*(one.name for one in self.scope.columns), *self.aliases])
        return self.context.error(
            node,
            f"There is no column `{'.'.join(parts)}`.",
            hint=hint or _known(self.scope),
        )


def refuse_chance(context: Context, node: exp.Expr) -> None:
    """Functions that give something else each time: an error, or the whole query is computed anew."""
    called = function_name(node) or node.sql(dialect="spark").split("(")[0].lower()
    if context.nondeterministic == "full":
        raise NoRuleError(f"{called}() gives something else each time.", whole=True)
    raise context.error(
        node,
        f"{called}() gives something else each time it is called.",
        why="A result that is kept up to date row by row has to be the same however often it is computed.",
        hint="Compute it where the result is read, or use refresh mode full with nondeterministic='full'.",
    )


def refuse_all_chance(context: Context, tree: exp.Expr) -> None:
    """Look at a whole text, before a part of it is taken as it stands."""
    for node in tree.walk():
        if is_chance(node):
            refuse_chance(context, node)


def refuse_now(context: Context, node: exp.Expr) -> None:
    """The current time outside of conditions: an error, or the whole query is computed anew."""
    called = function_name(node) or node.sql(dialect="spark").split("(")[0].lower()
    if context.nondeterministic == "full":
        raise NoRuleError(f"{called} is part of the result, so that every row changes with time.", whole=True)
    if is_time_of_day(node):
        raise context.error(
            node,
            f"{called} cannot be followed.",
            why="It begins again each day, so that rows would come and go with every moment.",
            hint="Compare times that have a date with now(), or use refresh mode full with "
            "nondeterministic='full'.",
        )
    raise context.error(
        node,
        f"{called} can be used only in conditions of WHERE, HAVING and inner joins.",
        why="Anywhere else every row would change with every moment.",
        hint="Compute it where the result is read, or use refresh mode full with nondeterministic='full'.",
    )


def rebuilt(node: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """The same node with its parts changed."""
    arguments: dict[str, object] = {}
    for name, value in node.args.items():
        if isinstance(value, exp.Expr):
            arguments[name] = change(value)
        elif isinstance(value, list):
            arguments[name] = [change(one) if isinstance(one, exp.Expr) else one for one in value]
        else:
            arguments[name] = value
    return faithful(type(node)(**arguments))


def bare(value: exp.Expr) -> exp.Expr:
    """Without the parentheses around it."""
    while isinstance(value, exp.Paren):
        value = value.this
    return value


def grouped(value: exp.Expr) -> exp.Expr:
    """With parentheses where a bigger expression around it could tear it apart."""
    single = (exp.Column, exp.Literal, exp.Paren, exp.Func, exp.Null, exp.Boolean, exp.Dot)
    loose = isinstance(value, (exp.Binary, exp.Unary)) or not isinstance(value, single)
    keep = isinstance(value, (exp.Paren, exp.Dot)) or not loose
    return value.copy() if keep else exp.Paren(this=value.copy())


def _with_fields(value: exp.Expr, fields: tuple[str, ...]) -> exp.Expr:
    for name in fields:
        value = exp.Dot(this=value, expression=exp.to_identifier(name, quoted=True))
    return value


def _parts(node: exp.Expr) -> tuple[str, ...] | None:
    """The names of a dotted name."""
    if isinstance(node, exp.Column):
        return tuple(part.name for part in node.parts)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = _parts(node.this)
        return None if before is None else (*before, node.expression.name)
    return None


def _like(node: exp.Expr, other: exp.Expr) -> exp.Expr:
    """A node in the place of another one."""
    node.parent = other.parent
    for part in other.walk():
        if "start" in part.meta:
            node.meta.update(part.meta)
            break
    return node


def _known(scope: Scope) -> str | None:
    names = list(dict.fromkeys(one.name for one in scope.columns))
    if not names:
        return None
    return f"Known here: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}."
