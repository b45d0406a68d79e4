"""One SELECT: its clauses in the order in which they take effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from headwater.algebra.building.conditions import apply_condition
from headwater.algebra.building.context import Context
from headwater.algebra.building.correlation import keyed
from headwater.algebra.building.functions import is_generator, value_of_nothing
from headwater.algebra.building.generators import generate
from headwater.algebra.building.grouping import group, output_aggregates
from headwater.algebra.building.ordering import is_limited, limit, only
from headwater.algebra.building.outputs import Output, listed
from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.resolving import Resolver, bare
from headwater.algebra.building.scopes import Around, Built, Visible
from headwater.algebra.building.sources import read_from
from headwater.algebra.building.subqueries import replace_subquery
from headwater.algebra.building.windows import add_windows
from headwater.algebra.building.withs import peeled
from headwater.algebra.relations import Aggregate, column, columns_of
from headwater.algebra.time_windows import window_without_rule

_UNKNOWN_CLAUSES = ("into", "match", "connect", "pivots", "prewhere", "sample", "kind", "exclude", "for_")


@dataclass(frozen=True)
class Item:
    """A column of the result: its name, and its value over the columns of the relation."""

    name: str
    value: exp.Expr
    type: str | None = None


class Block(Resolver):
    """A SELECT while it is built."""

    def __init__(self, context: Context, select: exp.Select, around: Around):
        super().__init__(context, around, replace_subquery)
        self.select = select
        self.items: list[Item] = []
        #: (name, call) of the aggregate functions.
        self.calls: tuple[tuple[str, exp.Expr], ...] = ()
        self.group_names: tuple[str, ...] = ()
        self.correlation_keys: tuple[str, ...] = ()
        self._outputs: list[Output] = []
        self._shown: tuple[str, ...] = ()

    @classmethod
    def inside(cls, resolver: Resolver, query: exp.Expr, *, exists: bool = False) -> Block:
        """A subquery of a resolver's expression, built up to its SELECT list."""
        context = resolver.context
        around = Around(resolver.around.named, resolver)
        query, around = peeled(context, query, around)
        if isinstance(query, exp.Select):
            block = cls(context, query, around)
            block.prepare()
            if not is_limited(query) or (exists and _keeps_one(query)):
                return block
            built = block.finish()
        else:
            built = context.build(query, around)
            block = cls(context, exp.Select(), around)
        block.select = exp.Select()
        block.relation, block.correlated = built.relation, list(built.correlated)
        block.groups, block.calls, block.group_names = None, (), ()
        block.items = [Item(one.name, column(one.internal), one.type) for one in built.columns]
        return block

    # -- what others ask of a subquery ---------------------------------------------------------------

    @property
    def is_constant_row(self) -> bool:
        """Whether it is a SELECT of expressions, without any clause."""
        clauses = ("from_", "where", "group", "having", "qualify", "limit", "offset", "laterals")
        bare_ = bool(self.select.expressions) and not any(self.select.args.get(one) for one in clauses)
        return bare_ and self.groups is None

    @property
    def is_total(self) -> bool:
        """Whether it is an aggregate without GROUP BY and has exactly one row."""
        clauses = ("group", "having", "qualify", "windows")
        plain = not any(self.select.args.get(one) for one in clauses)
        return plain and self.groups is not None and not is_limited(self.select)

    @property
    def one_row_each(self) -> bool:
        """Whether it has at most one row for one row of the query around it."""
        grouped = self.groups is not None and self.select.args.get("group") is not None
        return grouped and set(self.group_names) <= set(self.correlation_keys)

    @property
    def gives_values_for_nothing(self) -> bool:
        """Whether no rows can give a value that is not NULL."""
        return self.select.args.get("having") is not None or any(
            value_of_nothing(call) is not None for _, call in self.calls
        )

    def check_groups(self, what: str) -> None:
        """A correlated aggregate without GROUP BY has a row even where its subquery finds none."""
        if self.correlated and self.groups is not None and self.select.args.get("group") is None:
            raise NoRuleError(f"{what} has a correlated subquery with an aggregate and no GROUP BY.")

    def members(self, count: int, test: exp.Expr) -> list[str]:
        """The columns of a subquery that is compared with `count` values."""
        if len(self.items) != count:
            raise self.context.error(
                test,
                f"{count} value{'s' if count > 1 else ''} cannot be compared with {len(self.items)} columns.",
                hint="The subquery must select as many columns as stand before IN.",
            )
        names = [self.as_column(item.value, item.name) for item in self.items]
        self.flush()
        return names

    # -- building ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Everything up to the values of the SELECT list."""
        select = self.select
        for clause in _UNKNOWN_CLAUSES:
            if select.args.get(clause):
                raise NoRuleError(f"The clause {clause.strip('_').upper()} has no rule.")
        reason = window_without_rule(select)
        if reason is not None:
            raise NoRuleError(reason)
        read_from(self, select)
        if select.args.get("where") is not None:
            apply_condition(self, select.args["where"].this)
        self._outputs = listed(self)
        self.aliases = self._all_aliases()
        seen = [*(output.node for output in self._outputs), *self._later_nodes()]
        if select.args.get("group") or select.args.get("having") or any(output_aggregates(seen)):
            group(self, select.args.get("group"), seen)
        if select.args.get("having") is not None:
            self.aliases_instead = True
            apply_condition(self, select.args["having"].this)
            self.aliases_instead = False
        self._windows()
        if select.args.get("qualify") is not None:
            self.aliases, self.aliases_first = self._all_aliases(), True
            apply_condition(self, select.args["qualify"].this)
            self.aliases_first = False
        self._select_list()

    def finish(self) -> Built:
        """The SELECT as a relation."""
        shown = tuple(Visible(i.name, self.as_column(i.value, i.name), type=i.type) for i in self.items)
        self._shown = tuple(one.internal for one in shown)
        if self.select.args.get("distinct") is not None:
            shown = self._distinct(shown)
        shown = limit(self, self.select, shown, self._order_value)
        self.flush()
        return Built(self.relation, shown, tuple(self.correlated))

    def output_nodes(self) -> list[exp.Expr]:
        """The items of the SELECT, as written."""
        return [output.node for output in self._outputs]

    def by_number(self, node: exp.Expr, clause: str) -> exp.Expr:
        """The item of the SELECT that a number in GROUP BY or ORDER BY means."""
        if not (isinstance(node, exp.Literal) and node.is_int):
            return node
        place = int(node.name)
        if not 1 <= place <= len(self._outputs):
            raise self.context.error(
                node, f"{clause} {place}: the SELECT has {len(self._outputs)} columns.", hint="Count from 1."
            )
        return self._outputs[place - 1].node

    def _all_aliases(self) -> dict[str, exp.Expr]:
        return {one.alias.lower(): one.node for one in self._outputs if one.alias is not None}

    def _later_nodes(self) -> Iterator[exp.Expr]:
        """Expressions outside the SELECT list that see its groups."""
        for clause in ("having", "qualify"):
            if self.select.args.get(clause) is not None:
                yield self.select.args[clause].this
        if is_limited(self.select) and self.select.args.get("order") is not None:
            for item in self.select.args["order"].expressions:
                yield item.this

    def _windows(self) -> None:
        earlier: dict[str, exp.Expr] = {}
        parts: list[tuple[exp.Expr, dict[str, exp.Expr]]] = []
        for output in self._outputs:
            parts.append((output.node, dict(earlier)))
            if output.alias is not None:
                earlier.setdefault(output.alias.lower(), output.node)
        parts += [(node, earlier) for node in self._later_nodes()]
        add_windows(self, parts)

    def _select_list(self) -> None:
        self.aliases = {}
        for output in self._outputs:
            if is_generator(output.node):
                made = generate(self, output.node, output.names, outer=False)
                self.items += [Item(one.name, column(one.internal), one.type) for one in made]
                continue
            value = self.without_now(output.node)
            self.items.append(Item(output.name, value, self._type(value)))
            if output.alias is not None:
                self.aliases.setdefault(output.alias.lower(), output.node)

    def _type(self, value: exp.Expr) -> str | None:
        if not isinstance(value, exp.Column):
            return None
        return next((one.type for one in self.scope.columns if one.internal == value.name), None)

    def _distinct(self, shown: tuple[Visible, ...]) -> tuple[Visible, ...]:
        if self.select.args["distinct"].args.get("on") is not None:
            raise NoRuleError("DISTINCT ON has no rule.")
        names = [one.internal for one in shown]
        if self.correlated:
            keys, self.correlated = keyed(self, "A subquery with DISTINCT")
            names += keys
        self.flush()
        groups = tuple(dict.fromkeys(names))
        self.relation = Aggregate(only(self.relation, groups), groups, ())
        return shown

    def _order_value(self, node: exp.Expr) -> exp.Expr:
        item = self.by_number(node, "ORDER BY")
        if item is not node:
            value = self.items[[output is item for output in self.output_nodes()].index(True)].value
        else:
            self.aliases, self.aliases_first = self._all_aliases(), True
            value = self.without_now(node)
        if self.select.args.get("distinct") is None:
            return value
        # After DISTINCT only what is selected is there.
        for one, name in zip(self.items, self._shown, strict=True):
            if bare(one.value) == bare(value):
                return column(name)
        if columns_of(value) <= set(self.relation.columns):
            return value
        raise self.context.error(
            node,
            "After SELECT DISTINCT, ORDER BY can use only what is selected.",
            hint="Add the expression to the SELECT list.",
        )


def build_select(context: Context, select: exp.Select, around: Around) -> Built:
    """A SELECT as a relation."""
    block = Block(context, select, around)
    block.prepare()
    return block.finish()


def _keeps_one(query: exp.Expr) -> bool:
    """Whether a LIMIT keeps at least one row, if there is one."""
    count = query.args["limit"].expression if query.args.get("limit") is not None else None
    return (
        query.args.get("offset") is None
        and isinstance(count, exp.Literal)
        and count.is_int
        and int(count.name) > 0
    )
