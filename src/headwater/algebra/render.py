"""Relations as SQL text: Spark's for the work, DuckDB's to test the rules without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from headwater.algebra.relations import (
    WEIGHT,
    Aggregate,
    Concat,
    Filter,
    Generate,
    Join,
    Net,
    Opaque,
    Project,
    Relation,
    Scan,
    Semi,
    Side,
    Signed,
    TopK,
    UnionAll,
    Values,
    Window,
    column,
    columns_of,
    conjuncts,
    has_one_row,
)

#: Marks the moment of the refresh before, in conditions that speak of the current time.
BEFORE = "_hw_before"


def scan_name(scan: Scan) -> str:
    """What a scan's rows are called in the text: `sales.orders@new`."""
    return f"{scan.source}@{scan.version}"


def render(
    relation: Relation,
    *,
    dialect: str = "spark",
    names: Callable[[Scan], str] = scan_name,
    moments: Mapping[str, str] | None = None,
    hints: bool = False,
    subqueries: bool = False,
) -> str:
    """The SQL text of a relation: its columns, the rest of its key, its weight if it has one.

    `moments` are the texts of timestamps for `now` and `before`. With `hints` the small sides of joins are
    broadcast by Spark. With `subqueries` EXISTS of equal values is an IN, and the columns of a
    single row are values.
    """
    select = Renderer(dialect, names, hints, subqueries).select(relation)
    return sql_text(select, dialect=dialect, moments=moments)


def sql_text(select: exp.Expr, *, dialect: str = "spark", moments: Mapping[str, str] | None = None) -> str:
    """The text of an expression, with the moments it speaks of put in."""
    if moments is not None:
        select = select.transform(lambda node: _moment(node, moments), copy=False)
    return select.sql(dialect=dialect, copy=False)


@dataclass(frozen=True)
class Renderer:
    """Turns relations into SELECTs."""

    dialect: str = "spark"
    names: Callable[[Scan], str] = scan_name
    hints: bool = False
    #: What is equal to a partner in an IN meets conditions that are known of the partner; rows are compared
    #: with a value as soon as they are read. Spark concludes neither from a join.
    subqueries: bool = False
    _by_kind: Mapping[type[Relation], str] = field(
        default_factory=lambda: {
            Scan: "_scan",
            Values: "_values",
            Filter: "_filter",
            Project: "_project",
            Join: "_join",
            Semi: "_semi",
            Aggregate: "_aggregate",
            UnionAll: "_union_all",
            Generate: "_generate",
            Window: "_window",
            TopK: "_top_k",
            Opaque: "_opaque",
            Concat: "_concat",
            Signed: "_signed",
            Net: "_net",
            Side: "_side",
        }
    )

    def select(self, relation: Relation) -> exp.Query:
        """The relation as a query."""
        kind = next(kind for kind in type(relation).__mro__ if kind in self._by_kind)
        made: exp.Query = getattr(self, self._by_kind[kind])(relation)
        return made

    def from_(self, relation: Relation, alias: str = "_t") -> exp.Subquery:
        """The relation as what a FROM reads."""
        return self.select(relation).subquery(alias, copy=False)

    def _over(self, relation: Relation, child: Relation, *extra: exp.Expr) -> exp.Select:
        """All columns of a relation that its child has, and more."""
        return exp.select(*plain(outgoing(relation)), *extra).from_(self.from_(child), copy=False)

    # -- one method for each operator ---------------------------------------------------------------

    def _scan(self, scan: Scan) -> exp.Select:
        chosen: list[exp.Expr] = [aliased(column(stored), name) for name, stored in scan.fields]
        chosen += [
            aliased(column(stored), name) for name, stored in scan.key_fields if name not in scan.columns
        ]
        if scan.weighted:
            chosen.append(column(WEIGHT))
        if not chosen:
            chosen = [aliased(exp.Literal.number(1), "_hw_one")]
        table = exp.Table(this=exp.to_identifier(self.names(scan), quoted=True))
        return exp.select(*chosen).from_(table, copy=False)

    def _values(self, values: Values) -> exp.Query:
        rows: list[exp.Query] = []
        for number, row in enumerate(values.rows):
            chosen = [aliased(value.copy(), name) for name, value in zip(values.names, row, strict=True)]
            if values.ordinal is not None and values.ordinal not in values.names:
                chosen.append(aliased(exp.Literal.number(number), values.ordinal))
            rows.append(exp.select(*(chosen or [aliased(exp.Literal.number(1), "_hw_one")])))
        return _all_of(rows)

    def _filter(self, node: Filter) -> exp.Select:
        return self._over(node, node.child).where(node.condition.copy(), copy=False)

    def _project(self, node: Project) -> exp.Select:
        chosen: list[exp.Expr] = [aliased(value.copy(), name) for name, value in node.outputs]
        passed = outgoing(node)[len(node.outputs) :]
        chosen += plain(passed)
        if not chosen:
            chosen = [aliased(exp.Literal.number(1), "_hw_one")]
        return exp.select(*chosen).from_(self.from_(node.child), copy=False)

    def _join(self, node: Join) -> exp.Select:
        if self.subqueries and node.kind == "inner" and node.condition is None and has_one_row(node.right):
            return self._with_values(node)
        left, right = self.from_(node.left, "_l"), self.from_(node.right, "_r")
        extra: list[exp.Expr] = []
        if node.side is not None:
            left = self._marked(node.left, "_hw_in_left", "_l")
            right = self._marked(node.right, "_hw_in_right", "_r")
            side = exp.Case().when(_is_null("_hw_in_left"), exp.Literal.number(2))
            side = side.when(_is_null("_hw_in_right"), exp.Literal.number(1)).else_(exp.Literal.number(0))
            extra = [aliased(side, node.side)]
        chosen = [name for name in outgoing(node) if name != node.side]
        select = exp.select(*plain(chosen), *extra).from_(left, copy=False)
        if node.condition is None and node.kind == "inner":
            join = exp.Join(this=right, kind="CROSS")
        else:
            condition = node.condition.copy() if node.condition is not None else exp.true()
            named = {"kind": "INNER"} if node.kind == "inner" else {"side": node.kind.upper()}
            join = exp.Join(this=right, on=condition, **named)
        select.append("joins", join)
        return self._hinted(select, {"left": "_l", "right": "_r"}.get(node.small or ""))

    def _with_values(self, node: Join) -> exp.Select:
        """A join with a single row: its columns are values that are computed once."""
        given = frozenset(outgoing(node.left))
        values = [
            aliased(exp.select(column(name)).from_(self.from_(node.right), copy=False).subquery(), name)
            for name in outgoing(node)
            if name not in given
        ]
        chosen = plain([name for name in outgoing(node) if name in given])
        return exp.select(*chosen, *values).from_(self.from_(node.left), copy=False)

    def _marked(self, relation: Relation, mark: str, alias: str) -> exp.Subquery:
        return self._over(relation, relation, aliased(exp.true(), mark)).subquery(alias, copy=False)

    def _semi(self, node: Semi) -> exp.Select:
        if self.subqueries and not node.anti and (pairs := _equal_pairs(node)):
            return self._in(node, pairs)
        select = exp.select(*plain(outgoing(node), "_l")).from_(self.from_(node.left, "_l"), copy=False)
        kind = "ANTI" if node.anti else "SEMI"
        right = self.from_(node.right, "_r")
        select.append("joins", exp.Join(this=right, on=node.condition.copy(), side="LEFT", kind=kind))
        return self._hinted(select, "_r" if node.small else None)

    def _in(self, node: Semi, pairs: Sequence[tuple[exp.Expr, exp.Expr]]) -> exp.Select:
        ours, theirs = ([side.copy() for side in sides] for sides in zip(*pairs, strict=True))
        found = exp.select(*(aliased(value, f"_hw_{number}") for number, value in enumerate(theirs)))
        within = found.from_(self.from_(node.right), copy=False)
        given = ours[0] if len(ours) == 1 else exp.Tuple(expressions=ours)
        return self._over(node, node.left).where(exp.In(this=given, query=within.subquery()), copy=False)

    def _hinted(self, select: exp.Select, alias: str | None) -> exp.Select:
        if alias is not None and self.hints and self.dialect == "spark":
            return select.hint(f"BROADCAST({alias})", dialect="spark", copy=False)
        return select

    def _aggregate(self, node: Aggregate) -> exp.Select:
        calls = [aliased(self._call(call.copy()), name) for name, call in node.aggregates]
        chosen = [*plain(node.groups), *calls]
        select = exp.select(*chosen).from_(self.from_(node.child), copy=False)
        return select.group_by(*plain(node.groups), copy=False) if node.groups else select

    def _call(self, call: exp.Expr) -> exp.Expr:
        """DuckDB's count_if gives NULL where Spark's gives 0."""
        if self.dialect != "duckdb":
            return call
        return call.transform(
            lambda found: (
                exp.Count(this=exp.Case().when(found.this, exp.Literal.number(1)))
                if isinstance(found, exp.CountIf)
                else found
            ),
            copy=False,
        )

    def _union_all(self, node: UnionAll) -> exp.Query:
        keys = [name for name in node.key if name != node.tag]
        branches: list[exp.Query] = []
        for number, child in node.tagged:
            chosen: list[exp.Expr] = [
                aliased(column(theirs), name) for theirs, name in zip(child.columns, node.names, strict=True)
            ]
            chosen.append(aliased(exp.Literal.number(number), node.tag))
            chosen += [aliased(column(name) if name in child.key else exp.null(), name) for name in keys]
            if node.weighted:
                chosen.append(column(WEIGHT))
            branches.append(exp.select(*chosen).from_(self.from_(child), copy=False))
        return _all_of(branches)

    def _concat(self, node: Concat) -> exp.Query:
        names = outgoing(node)
        return _all_of(
            [exp.select(*plain(names)).from_(self.from_(child), copy=False) for child in node.inputs]
        )

    def _generate(self, node: Generate) -> exp.Select:
        if self.dialect == "duckdb":
            return self._unnested(node)
        select = exp.select(*plain(outgoing(node))).from_(self.from_(node.child), copy=False)
        view = exp.Lateral(
            this=exp.Posexplode(this=node.generator.this.copy()),
            view=True,
            outer=node.outer,
            alias=exp.TableAlias(
                this=exp.to_identifier("_g", quoted=True),
                columns=[exp.to_identifier(name, quoted=True) for name in (node.ordinal, *node.outputs)],
            ),
        )
        select.append("laterals", view)
        return select

    def _unnested(self, node: Generate) -> exp.Select:
        """DuckDB's way; arrays only."""
        items = node.generator.this
        if node.outer:
            empty = exp.Or(
                this=exp.Is(this=items.copy(), expression=exp.null()),
                expression=exp.EQ(this=exp.func("len", items.copy()), expression=exp.Literal.number(0)),
            )
            items = exp.Case().when(empty, exp.Array(expressions=[exp.null()])).else_(items.copy())
        values = exp.func("unnest", items.copy())
        places = exp.func("unnest", exp.func("range", exp.func("len", items.copy())))
        given = [name for name in outgoing(node) if name not in (*node.outputs, node.ordinal)]
        return exp.select(
            *plain(given), aliased(values, node.outputs[-1]), aliased(places, node.ordinal)
        ).from_(self.from_(node.child), copy=False)

    def _window(self, node: Window) -> exp.Select:
        calls = [aliased(_tie_broken(call, node.child.key), name) for name, call in node.functions]
        given = [name for name in outgoing(node) if name not in dict(node.functions)]
        return exp.select(*plain(given), *calls).from_(self.from_(node.child), copy=False)

    def _top_k(self, node: TopK) -> exp.Select:
        order = [*(item.copy() for item in node.order), *tie_breakers(node.order, node.key)]
        select = self._over(node, node.child).order_by(*order, copy=False).limit(node.limit, copy=False)
        return select.offset(node.offset, copy=False) if node.offset else select

    def _opaque(self, node: Opaque) -> exp.Select:
        read = exp.Subquery(this=node.sql.copy(), alias=exp.TableAlias(this=exp.to_identifier("_t")))
        call = exp.Window(
            this=exp.RowNumber(),
            partition_by=plain(node.names),
            order=exp.Order(expressions=[exp.Ordered(this=exp.Literal.number(1))]),
        )
        select = exp.select(*plain(node.names), aliased(call, node.copy)).from_(read, copy=False)
        for number, child in enumerate(node.inputs):
            select = select.with_(f"_hw_input_{number}", self.select(child), copy=False)
        return select

    def _signed(self, node: Signed) -> exp.Select:
        chosen = [name for name in outgoing(node) if name != WEIGHT]
        sign = exp.cast(exp.Literal.number(node.sign), "int")
        return exp.select(*plain(chosen), aliased(sign, WEIGHT)).from_(self.from_(node.child), copy=False)

    def _side(self, node: Side) -> exp.Select:
        kind = exp.GT if node.came else exp.LT
        return self._over(node, node.child).where(kind(this=column(WEIGHT), expression=exp.Literal.number(0)))

    def _net(self, node: Net) -> exp.Select:
        names = [name for name in outgoing(node) if name != WEIGHT]
        total = exp.Sum(this=column(WEIGHT))
        select = exp.select(*plain(names), aliased(exp.cast(total, "int"), WEIGHT))
        select = select.from_(self.from_(node.child), copy=False).group_by(*plain(names), copy=False)
        return select.having(exp.NEQ(this=total.copy(), expression=exp.Literal.number(0)), copy=False)


def _equal_pairs(node: Semi) -> list[tuple[exp.Expr, exp.Expr]] | None:
    """What a condition says is equal, ours and theirs, if it says nothing else."""
    ours, theirs = frozenset(node.left.all_columns), frozenset(node.right.all_columns)
    found = []
    for part in conjuncts(node.condition):
        if not isinstance(part, exp.EQ):
            return None
        for left, right in ((part.left, part.right), (part.right, part.left)):
            if columns_of(left) <= ours and columns_of(right) and columns_of(right) <= theirs:
                found.append((left, right))
                break
        else:
            return None
    return found


def outgoing(relation: Relation) -> tuple[str, ...]:
    """Everything a relation's SELECT gives: columns, hidden key, weight."""
    return relation.all_columns + ((WEIGHT,) if relation.weighted else ())


def plain(names: Sequence[str], table: str | None = None) -> list[exp.Expr]:
    """Columns as they are."""
    if table is None:
        return [column(name) for name in names]
    return [exp.column(exp.to_identifier(name, quoted=True), table=table) for name in names]


def aliased(value: exp.Expr, name: str) -> exp.Alias:
    """A value under a name."""
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))


def tie_breakers(order: Sequence[exp.Expr], key: Sequence[str]) -> list[exp.Expr]:
    """What makes an order total: the rest of the key, so that two runs agree on equal rows."""
    given = {item.this.name for item in order if isinstance(item.this, exp.Column)}
    return [exp.Ordered(this=column(name)) for name in key if name not in given]


def _tie_broken(call: exp.Expr, key: Sequence[str]) -> exp.Expr:
    """A window function whose order is total where ties would leave its result open."""
    call = call.copy()
    for window in call.find_all(exp.Window):
        order = window.args.get("order")
        name = (
            window.this.this if isinstance(window.this, (exp.IgnoreNulls, exp.RespectNulls)) else window.this
        )
        peers = isinstance(name, (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist))
        frame = window.args.get("spec")
        if order is None or peers or (isinstance(name, exp.AggFunc) and not _by_rows(name, frame)):
            continue
        order.set("expressions", [*order.expressions, *tie_breakers(order.expressions, key)])
    return call


def _by_rows(call: exp.Expr, frame: exp.Expr | None) -> bool:
    """Whether equal rows in an order can get different results."""
    counted = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)
    return isinstance(call, counted) or (frame is not None and frame.args.get("kind") == "ROWS")


def _is_null(name: str) -> exp.Expr:
    return exp.Is(this=column(name), expression=exp.null())


def _all_of(selects: Sequence[exp.Query]) -> exp.Query:
    whole = selects[0]
    for select in selects[1:]:
        whole = exp.Union(this=whole, expression=select, distinct=False)
    return whole


def _moment(node: exp.Expr, moments: Mapping[str, str]) -> exp.Expr:
    which = "now"
    if isinstance(node, exp.Anonymous) and node.name == BEFORE:
        which, node = "before", node.expressions[0]
    if isinstance(node, exp.CurrentDate):
        return exp.cast(_timestamp(moments[which]), "date")
    if isinstance(node, exp.CurrentTimestamp):
        return _timestamp(moments[which])
    if isinstance(node, exp.Localtimestamp):
        return exp.cast(exp.Literal.string(moments[which]), exp.DType.TIMESTAMPNTZ)
    return node


def _timestamp(text: str) -> exp.Expr:
    return exp.cast(exp.Literal.string(text), exp.DType.TIMESTAMPTZ)
