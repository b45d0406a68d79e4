"""A YAML file as plain values that know where they stand.

Nothing in a document can construct an object, and no document can be larger than what it says: the size of
the file, its depth and the number of values after aliases are bounded. The places that messages name are
`file:line:column`, counted from 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from headwater.errors import PlaybookError

#: A document of steps is small; data belongs into files that tools read.
MAX_BYTES = 512 << 10
MAX_DEPTH = 64
#: Values after every alias is followed. Aliases of aliases double with each line.
MAX_VALUES = 100_000

#: From the whole document to one value: names of keys and indexes of lists.
ValuePath = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Text(str):
    """A text of a document. It is a `str` in every respect, and knows its place."""

    __slots__ = ("_indent", "_starts", "place")

    place: Place
    _starts: Place | None
    _indent: int

    def __new__(cls, value: str, place: Place, starts: Place | None = None, indent: int = 0) -> Text:
        """`starts` is where the first character stands, if characters stand in the file as they are here."""
        text = super().__new__(cls, value)
        text.place = place
        text._starts = starts
        text._indent = indent
        return text

    def __reduce__(self) -> Any:
        return Text, (str(self), self.place, self._starts, self._indent)

    def at(self, index: int) -> Place:
        """Where the character of that index stands; for texts that YAML folded, where the text begins."""
        if self._starts is None:
            return self.place
        line = self.count("\n", 0, index)
        if line == 0:
            return Place(self.place.file, self._starts.line, self._starts.column + index)
        column = index - self.rfind("\n", 0, index) - 1
        return Place(self.place.file, self._starts.line + line, self._indent + column + 1)


@dataclass
class Document:
    """The content of a file; `keys` and `values` have the places of both, by their path."""

    file: str
    content: Any = None
    digest: str = ""
    problems: list[tuple[Place, str, str, str | None]] = field(default_factory=list)
    """Place, code, message and hint of what can be told without knowing what the document is about."""
    key_places: dict[ValuePath, Place] = field(default_factory=dict)
    value_places: dict[ValuePath, Place] = field(default_factory=dict)
    text: str = field(default="", repr=False)
    spans: dict[ValuePath, tuple[int, int]] = field(default_factory=dict, repr=False)
    """Where in the text a key begins and its value ends; of an element of a list, both its own."""

    def place(self, path: ValuePath = ()) -> Place:
        """Where a value stands; of one that is not there, where its parent does."""
        while path and path not in self.value_places:
            path = path[:-1]
        return self.value_places.get(path, Place(self.file, 1, 1))

    def key_place(self, path: ValuePath) -> Place:
        """Where the key of a value stands."""
        return self.key_places.get(path) or self.place(path)


def read_document(path: Path | str) -> Document:
    """Read a file; raises PlaybookError where it cannot be read or is not YAML at all."""
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PlaybookError(
            f"The playbook {name} cannot be read.", detail=error.strerror, file=name
        ) from None
    return parse_document(data, name)


def parse_document(data: bytes | str, file: str = "playbook") -> Document:
    """The document that a text is."""
    raw = data.encode() if isinstance(data, str) else data
    start = Place(file, 1, 1)
    if len(raw) > MAX_BYTES:
        raise _refused(start, "too_large", f"the file is larger than {MAX_BYTES >> 10} KiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _refused(Place(file, line, 1), "encoding", "the file is not UTF-8 text") from None
    document = Document(file, digest=hashlib.sha256(raw).hexdigest(), text=text)
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
        if root is not None:
            document.content = _Reader(document, text, yaml).read(root, ())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else start
        problem = (error.problem or error.context or "not valid YAML").strip().splitlines()[0]
        raise _refused(place, "yaml", problem, _yaml_hint(problem)) from None
    except YAMLError as error:  # a character that YAML does not allow
        raise _refused(start, "yaml", str(error).strip().splitlines()[0]) from None
    except RecursionError:
        raise _refused(start, "too_deep", f"values are nested deeper than {MAX_DEPTH} levels") from None
    return document


def _refused(place: Place, code: str, message: str, hint: str | None = None) -> PlaybookError:
    return PlaybookError(
        f"{place}: {message}.",
        hint=hint,
        file=place.file,
        line=place.line,
        column=place.column,
        finding=code,
    )


def _yaml_hint(problem: str) -> str | None:
    if "unhashable" in problem or "expected <block end>" in problem or "mapping values" in problem:
        return "Look at the indentation, and put quotes around values that begin with {{ or hold a colon."
    if "expected a single document" in problem:
        return "One playbook per file: remove the `---` between them."
    return None


_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
#: A date stays the text that was written: SQL and templates both take it as one.
_TEXT_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "timestamp", "value"))
_MERGE = "tag:yaml.org,2002:merge"
_MAP = "tag:yaml.org,2002:map"
_SEQ = "tag:yaml.org,2002:seq"


class _Reader:
    """Makes plain values of YAML's nodes, and notes where they stand."""

    def __init__(self, document: Document, text: str, yaml: YAML):
        self._document = document
        self._lines = text.split("\n")
        self._constructor = yaml.constructor
        self._count = 0

    def read(self, node: Node, path: ValuePath) -> Any:
        place = self._place(node)
        self._count += 1
        if self._count > MAX_VALUES:
            raise _refused(
                place,
                "too_large",
                f"the document has more than {MAX_VALUES:,} values once its aliases are followed",
            )
        if len(path) > MAX_DEPTH:
            raise _refused(place, "too_deep", f"values are nested deeper than {MAX_DEPTH} levels")
        self._document.value_places[path] = place
        self._document.spans.setdefault(path, (node.start_mark.index, node.end_mark.index))
        if isinstance(node, MappingNode) and node.tag == _MAP:
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == _SEQ:
            return [self.read(inner, (*path, index)) for index, inner in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            return self._scalar(node, place)
        return self._tagged(node, place)

    def _mapping(self, node: MappingNode, path: ValuePath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: list[tuple[Node, Node]] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged.extend(self._merged(value_node))
                continue
            key = self._key(key_node)
            if key is None:
                continue
            place = self._place(key_node)
            if key in values:
                first = self._document.key_places[(*path, key)].line
                self._problem(place, "duplicate_key", f"`{key}` is there twice; first in line {first}")
                continue
            self._document.key_places[(*path, key)] = place
            self._document.spans[(*path, key)] = (key_node.start_mark.index, value_node.end_mark.index)
            values[key] = self.read(value_node, (*path, key))
        for key_node, value_node in merged:  # what stands in the mapping itself wins
            key = self._key(key_node)
            if key is not None and key not in values:
                self._document.key_places[(*path, key)] = self._place(key_node)
                self._document.spans[(*path, key)] = (key_node.start_mark.index, value_node.end_mark.index)
                values[key] = self.read(value_node, (*path, key))
        return values

    def _merged(self, node: Node, depth: int = 0) -> Iterator[tuple[Node, Node]]:
        """The pairs that `<<:` brings in; of several mappings, the first one's come first and win."""
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_VALUES:
            raise _refused(self._place(node), "too_deep", "`<<` follows too many other ones")
        if isinstance(node, SequenceNode):
            for inner in node.value:
                yield from self._merged(inner, depth + 1)
            return
        if not isinstance(node, MappingNode):
            self._problem(self._place(node), "yaml", "`<<` takes a mapping, such as `*name_of_an_anchor`")
            return
        later = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                later.append(value_node)
            else:
                self._count += 1
                yield key_node, value_node
        for value_node in later:
            yield from self._merged(value_node, depth + 1)

    def _key(self, node: Node) -> str | None:
        if isinstance(node, ScalarNode) and node.tag in _PLAIN_TAGS | _TEXT_TAGS:
            return str(node.value)
        self._problem(
            self._place(node),
            "yaml",
            "a key must be a plain name",
            "Put quotes around values that begin with {{.",
        )
        return None

    def _scalar(self, node: ScalarNode, place: Place) -> Any:
        if node.tag in _TEXT_TAGS:
            return self._text(node, place)
        if node.tag in _PLAIN_TAGS:
            return self._constructor.construct_object(node)
        return self._tagged(node, place)

    def _text(self, node: ScalarNode, place: Place) -> Text:
        starts, indent = None, 0
        if node.style == "|":
            starts, indent = self._block(node, place)
        elif node.style != ">" and node.start_mark.line == node.end_mark.line:
            written = self._lines[place.line - 1][node.start_mark.column : node.end_mark.column]
            quoted = 1 if node.style in ("'", '"') else 0
            if len(written) - 2 * quoted == len(node.value):  # nothing was escaped
                starts = Place(place.file, place.line, place.column + quoted)
        return Text(node.value, place, starts, indent)

    def _block(self, node: ScalarNode, place: Place) -> tuple[Place | None, int]:
        """Where the first character of a `|` block stands: YAML takes the same indentation off every line."""
        first = node.value.split("\n", 1)[0]
        written = self._lines[place.line] if place.line < len(self._lines) else ""
        if not written.endswith(first) or not first.strip():
            return None, 0
        indent = len(written) - len(first)
        return Place(place.file, place.line + 1, indent + 1), indent

    def _tagged(self, node: Node, place: Place) -> None:
        tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")
        self._problem(place, "tag", f"the tag `{tag}` is not allowed", "Values are plain YAML: remove it.")

    def _problem(self, place: Place, code: str, message: str, hint: str | None = None) -> None:
        self._document.problems.append((place, code, message + ".", hint))

    def _place(self, node: Node) -> Place:
        mark = node.start_mark
        return Place(self._document.file, mark.line + 1, mark.column + 1)
