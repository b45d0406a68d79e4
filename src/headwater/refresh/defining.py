"""Definitions: what one means for a stream table that may be there already, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from headwater.algebra.views import normalised
from headwater.errors import InvalidInputError, StreamTableError
from headwater.refresh.compiling import Compiled
from headwater.refresh.model import (
    Definition,
    Mode,
    Status,
    StoredStage,
    StreamTable,
)
from headwater.refresh.sealing import shown_option
from headwater.refresh.store import new_stream_id
from headwater.sinks.model import SINK_OPTIONS
from headwater.typedefs import STORAGE_SCHEMA, TableName


def built_stream(
    definition: Definition,
    existing: StreamTable | None,
    compiled: Compiled,
    stages: Sequence[StoredStage],
    moment: datetime,
) -> StreamTable:
    """A stream table that is being built, in the place of another if there is one."""
    upstream = [source.stream.id for source in compiled.sources.values() if source.stream is not None]
    return StreamTable(
        existing.id if existing is not None else new_stream_id(),
        definition,
        existing.status if existing is not None else Status.ACTIVE,
        tuple(stages),
        tuple((name, compiled.program.result.types[name]) for name in compiled.program.columns),
        tuple(dict.fromkeys(upstream)),
        None,
        depends_on_time=any(stage.depends_on_time for stage in compiled.program.stages),
        created_at=existing.created_at if existing is not None else moment,
        published=existing.published if existing is not None else (),
        sink_states=existing.sink_states if existing is not None else (),
    )


def changed_options(old: Definition, new: Definition) -> list[str]:
    """What changes of options and sinks, in sentences without secrets."""
    changed = []
    for option in sorted({*old.options, *new.options}):
        before, after = old.options.get(option), new.options.get(option)
        if before != after:
            shown = [shown_option(option, value) or "none" for value in (before, after)]
            what = f"changes from {shown[0]} to {shown[1]}" if shown[0] != shown[1] else "changes"
            changed.append(f"Option {option} {what}.")
    for sink in sorted({*old.sinks, *new.sinks}):
        if old.sinks.get(sink) != new.sinks.get(sink):
            verb = "is added" if sink not in old.sinks else "changes" if sink in new.sinks else "is dropped"
            changed.append(f"Sink {sink} {verb}.")
    return changed


def sink_options(definition: Definition) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
    """What a definition says about sinks."""
    given = {option: value for option, value in definition.options.items() if option in SINK_OPTIONS}
    return given, definition.sinks


def storage_name(name: TableName, source: str) -> TableName:
    """Where a stage of a stream table is stored."""
    tail = "" if source == "@" else f"__{source.removeprefix('@')}"
    return TableName(STORAGE_SCHEMA, f"{name.schema}__{name.name}{tail}")


def name_ddl(name: str) -> str:
    """A name as Spark's types have it."""
    return "`" + name.replace("`", "``") + "`"


def same_rows(old: Definition, new: Definition) -> bool:
    """Whether two definitions mean the same rows, however they are written."""
    if old.fingerprint == new.fingerprint:
        return True
    if old.query is None or new.query is None:
        return False
    return (
        replace(old, query=normalised(old.query)).fingerprint
        == replace(new, query=normalised(new.query)).fingerprint
    )


def refuse_if_strict(definition: Definition, compiled: Compiled) -> None:
    """Of a strict stream table, refuse a query that cannot follow changes."""
    reasons = compiled.program.reasons
    if definition.mode is Mode.STRICT and reasons:
        raise StreamTableError(
            f"Stream table {definition.name} cannot follow changes, and its mode is strict.",
            detail="; ".join(reasons),
            hint="Write the query otherwise, or use REFRESH MODE auto.",
            stream_table=str(definition.name),
            reasons=list(reasons),
        )


def refuse_name(definition: Definition) -> None:
    """Refuse names among those of what is stored."""
    if not definition.name.name or definition.name.schema == STORAGE_SCHEMA:
        raise InvalidInputError(
            f"{definition.name} is no name for a stream table.",
            detail=f"Schema {STORAGE_SCHEMA} holds what is stored for stream tables.",
        )


def refuse_cycle(
    definition: Definition, existing: StreamTable | None, compiled: Compiled, others: Sequence[StreamTable]
) -> None:
    """A stream table must not read itself, however far round."""
    if existing is None:
        return
    by_id = {stream.id: stream for stream in others}
    waiting: list[tuple[StreamTable, tuple[str, ...]]] = [
        (source.stream, (str(definition.name),))
        for source in compiled.sources.values()
        if source.stream is not None
    ]
    while waiting:
        stream, path = waiting.pop()
        if existing.id in stream.upstream:
            round_ = " → ".join((*path, str(stream.name), str(definition.name)))
            raise StreamTableError(
                f"Stream table {definition.name} would read itself.",
                detail=round_,
                stream_table=str(definition.name),
            )
        waiting += [(by_id[i], (*path, str(stream.name))) for i in stream.upstream if i in by_id]
