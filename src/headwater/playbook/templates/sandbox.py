"""The language of templates: Jinja's expressions, `if`, `for` and `set`, and nothing that could do harm.

A template sees values and a short list of filters and methods. It reaches no attribute of a Python object,
cannot be made to work for long or to grow, and gives the same text each time it is rendered, so a run that is
resumed asks for what it asked before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, NoReturn

from jinja2 import StrictUndefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateRuntimeError, TemplateSyntaxError
from jinja2.filters import FILTERS
from jinja2.runtime import Context, LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

#: Characters that a template may give, and that any text inside it may have.
MAX_TEXT = 8 << 20
#: Turns of `for`, and elements that filters go through, in one template.
MAX_WORK = 200_000
MAX_SECONDS = 10.0
_MAX_BITS = 4096


class Value(str):
    """What an expression of a template gave, on its way to the text: Jinja itself only passes text on."""

    __slots__ = ("value",)
    value: Any

    def __new__(cls, value: Any) -> Value:
        """Hold a value."""
        held = super().__new__(cls, "")
        held.value = value
        return held

    def __str__(self) -> str:
        return self


class RawSql(str):
    """Text that `| raw` marks as SQL: it is inserted as it is."""

    __slots__ = ()


class Identifier(tuple[str, ...]):
    """Names that `| identifier` marks: they are written as quoted names."""

    __slots__ = ()


class Each(tuple[Any, ...]):
    """Values that `| each` marks: they are written one after the other, separated by commas."""

    __slots__ = ()


class MissingNameError(TemplateRuntimeError):
    """A name, a key or an index that is not there."""

    def __init__(self, name: object, owner: Any):
        super().__init__(f"`{name}` is not defined.")
        self.name = name
        self.owner = owner
        """The value that has no such key; `jinja2.utils.missing` for a name that stands alone."""


class Missing(StrictUndefined):
    """A value that is not there. Whatever is done with it says so, except `is defined` and `default`."""

    __slots__ = ()

    def _fail_with_undefined_error(self, *_: Any, **__: Any) -> NoReturn:
        raise MissingNameError(self._undefined_name, self._undefined_obj)

    __iter__ = __str__ = __len__ = _fail_with_undefined_error
    __eq__ = __ne__ = __bool__ = __hash__ = _fail_with_undefined_error
    __contains__ = _fail_with_undefined_error


class _Budget:
    """What one rendering may still do."""

    def __init__(self) -> None:
        self._work = MAX_WORK
        self._deadline = time.monotonic() + MAX_SECONDS

    def spend(self, amount: int) -> None:
        self._work -= amount
        if self._work < 0:
            raise SecurityError(f"the template does more than {MAX_WORK:,} steps of work.")
        if time.monotonic() > self._deadline:
            raise SecurityError(f"the template takes longer than {MAX_SECONDS:.0f} seconds.")


_BUDGET: ContextVar[_Budget] = ContextVar("budget")


@contextmanager
def budget() -> Iterator[None]:
    """Bounds what is rendered inside."""
    token = _BUDGET.set(_Budget())
    try:
        yield
    finally:
        _BUDGET.reset(token)


def _spend(amount: int = 1) -> None:
    current = _BUDGET.get(None)
    if current is not None:
        current.spend(amount)


def as_text(value: Any) -> str:
    """A value inside a text: JSON's spelling of what is not text itself."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    return to_json(value)


def to_json(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(plain(value), ensure_ascii=False, default=_spelled)


def _spelled(value: Any) -> str:
    """What JSON has no form for."""
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    return str(value)


def plain(value: Any) -> Any:
    """The value without views: dicts and lists that can be stored and sent."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Iterable):  # lists, and what `map`, `select` and the like give
        return [plain(inner) for inner in value]
    return value


# --- filters ---------------------------------------------------------------------------------------

#: Of Jinja's own. Left out: those that format, pad or fill (their results have any size), that write HTML,
#: and `random`.
_JINJA_FILTERS = """
    abs capitalize count d default dictsort first float groupby int items last length list lower map max min
    reject rejectattr reverse round select selectattr sort string sum title trim unique upper
""".split()  # noqa: SIM905

_NO_CHARGE = frozenset({"d", "default"})  # they take values that are not there


def _charged(name: str) -> Callable[..., Any]:
    """A filter of Jinja that pays for the elements it goes through."""
    function = FILTERS[name]
    takes_more = getattr(function, "jinja_pass_arg", None) is not None

    def charged(*arguments: Any, **options: Any) -> Any:
        value = arguments[1] if takes_more else arguments[0]
        if isinstance(value, Undefined):
            return value._fail_with_undefined_error()
        _spend(1 + (len(value) if isinstance(value, list | tuple | Mapping | range) else 0))
        return function(*arguments, **options)

    if takes_more:
        charged.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
    return charged


def _joined(values: Iterable[Any], separator: str = "") -> str:
    texts = [as_text(value) for value in _counted(values)]
    _fits(sum(map(len, texts)) + len(separator) * len(texts))
    return str(separator).join(texts)


def _replaced(text: str, old: str, new: str) -> str:
    given = as_text(text)
    _fits(len(given) + given.count(old) * len(new))
    return given.replace(old, new)


def _concatenated(values: Sequence[Any]) -> str:
    texts = [as_text("" if value is None else _there(value)) for value in values]
    _fits(sum(map(len, texts)))
    return "".join(texts)


def _sliced(value: Any, start: Any, stop: Any, step: Any) -> Any:
    if not isinstance(_there(value), str | list | tuple):
        raise TypeError(f"a {type(value).__name__} has no slices")
    return value[_there(start) : _there(stop) : _there(step)]


def _counted(values: Any) -> Iterator[Any]:
    for value in _there(values):
        _spend()
        yield value


def _there(value: Any) -> Any:
    return value._fail_with_undefined_error() if isinstance(value, Undefined) else value


def _identifier(value: Any) -> Identifier:
    given = [value] if isinstance(value, str) else list(_counted(value))
    return Identifier(as_text(_there(name)) for name in given)


def _each(value: Any) -> Each:
    return Each(plain(one) for one in _counted(value))


def _raw(value: Any) -> RawSql:
    return RawSql(as_text(_there(value)))


def _range(*bounds: int) -> range:
    span = range(*bounds)
    _spend(len(span))
    return span


def _fits(length: int) -> None:
    if length > MAX_TEXT:
        raise SecurityError(f"the template makes a text of more than {MAX_TEXT >> 20} MiB.")


# --- the environment -------------------------------------------------------------------------------

_TEXT_METHODS = frozenset(
    """
    capitalize casefold count endswith find isalnum isalpha isdecimal isdigit islower isupper lower lstrip
    removeprefix removesuffix rstrip split splitlines startswith strip title upper
    """.split()  # noqa: SIM905
)
_DATE_PARTS = frozenset(
    "year month day hour minute second microsecond date time isoformat weekday isoweekday timestamp".split()  # noqa: SIM905
)
_TURN_PARTS = frozenset({"index", "index0", "revindex", "first", "last", "length", "previtem", "nextitem"})
#: Of what a value is, and which of Python's methods templates may call on it.
_METHODS: tuple[tuple[type | tuple[type, ...], frozenset[str]], ...] = (
    (str, _TEXT_METHODS),
    (Mapping, frozenset({"get", "items", "keys", "values"})),
    ((list, tuple), frozenset({"count", "index"})),
    ((date, datetime, time_of_day), _DATE_PARTS),
    (LoopContext, _TURN_PARTS),
)

_STATEMENTS = (
    nodes.Macro,
    nodes.CallBlock,
    nodes.FilterBlock,
    nodes.AssignBlock,
    nodes.Block,
    nodes.Extends,
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.With,
    nodes.NSRef,
    nodes.ScopedEvalContextModifier,
)


@pass_context
def _held(_: Context, value: Any) -> Value:
    # That it asks for the context keeps Jinja from calling it when it compiles. Views and generators are
    # made plain here, where errors in them still belong to the template.
    return Value(value if isinstance(value, RawSql | Identifier | Each) else plain(_there(value)))


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja with the limits above."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            undefined=Missing,
            finalize=_held,
            keep_trailing_newline=True,
            autoescape=False,
            cache_size=0,
            optimized=False,  # what is known when a template is compiled is bounded as well
        )
        self.globals = {"range": _range}
        self.filters = {
            name: FILTERS[name] if name in _NO_CHARGE else _charged(name) for name in _JINJA_FILTERS
        } | {
            "join": _joined,
            "replace": _replaced,
            "tojson": to_json,
            "identifier": _identifier,
            "each": _each,
            "raw": _raw,
            "_counted": _counted,
            "_concatenated": _concatenated,
            "_sliced": _sliced,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for statement in tree.find_all(_STATEMENTS):
            word = type(statement).__name__.lower()
            raise TemplateSyntaxError(
                f"`{word}` is not part of templates here: there are expressions, `if`, `for` and `set`.",
                statement.lineno,
            )
        for name_node in tree.find_all(nodes.Name):
            if name_node.name == "self":  # Jinja's handle of the template itself
                raise TemplateSyntaxError("`self` is not defined.", name_node.lineno)
        # `for`, `~` and slices have no hook of their own, so they are sent through filters.
        for turn in tree.find_all(nodes.For):
            if turn.recursive:
                raise TemplateSyntaxError("`for … recursive` is not part of templates here.", turn.lineno)
            turn.iter = _filtered(turn.iter, "_counted")
        _replace_operators(tree)
        return tree

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`obj.attribute`: a key, or one of the methods that are allowed."""
        _there(obj)
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        for kind, names in _METHODS:
            if isinstance(obj, kind) and attribute in names:
                return getattr(obj, attribute)
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`obj[argument]`: a key, an index or a slice."""
        _there(obj), _there(argument)
        try:
            if isinstance(obj, Mapping) or (
                isinstance(obj, Sequence) and isinstance(argument, int | slice) and argument is not True
            ):
                return obj[argument]
        except (LookupError, TypeError):
            pass
        return self.undefined(obj=obj, name=argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator whose result can be much larger than what it is applied to."""
        _there(left), _there(right)
        if operator == "%" and isinstance(left, str):
            raise SecurityError("`%` does not format texts here; write them with `~`.")
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            _bits(left.bit_length() * abs(right))
        if operator == "*":
            for sized, times in ((left, right), (right, left)):
                if isinstance(sized, str | list | tuple) and isinstance(times, int):
                    _fits(len(sized) * max(times, 0))
            if isinstance(left, int) and isinstance(right, int):
                _bits(left.bit_length() + right.bit_length())
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, str | list | tuple):
            _fits(len(result))
        return result


def _bits(count: int) -> None:
    if count > _MAX_BITS:
        raise SecurityError(f"the template makes a number of more than {_MAX_BITS:,} bits.")


def _filtered(value: nodes.Node, name: str, *arguments: nodes.Node) -> nodes.Filter:
    return nodes.Filter(
        value, name, list(arguments), [], None, None, lineno=value.lineno, environment=SANDBOX
    )


def _replace_operators(node: nodes.Node) -> None:
    """Put filters in the place of operators that Jinja compiles to Python's own."""
    for name, value in node.iter_fields():
        if isinstance(value, list):
            setattr(node, name, [_replaced_operator(inner) for inner in value])
        else:
            setattr(node, name, _replaced_operator(value))


def _replaced_operator(value: Any) -> Any:
    if not isinstance(value, nodes.Node):
        return value
    _replace_operators(value)
    if isinstance(value, nodes.Concat):
        return _filtered(nodes.List(value.nodes, lineno=value.lineno, environment=SANDBOX), "_concatenated")
    if isinstance(value, nodes.Getitem) and isinstance(value.arg, nodes.Slice):
        nothing = nodes.Const(None, lineno=value.lineno, environment=SANDBOX)
        bounds = (value.arg.start, value.arg.stop, value.arg.step)
        return _filtered(value.node, "_sliced", *(one or nothing for one in bounds))
    return value


SANDBOX = Sandbox()
