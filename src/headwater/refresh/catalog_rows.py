"""Stream tables and refreshes as rows of the catalog, and back. JSON holds everything exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import uuid4

from headwater.lake.catalog import table_name
from headwater.refresh.catalog_tables import REFRESH_COLUMNS
from headwater.refresh.model import (
    Action,
    Definition,
    Frontier,
    Mode,
    Prediction,
    PublishedTable,
    RefreshResult,
    SourcePosition,
    StageReport,
    Status,
    StoredStage,
    StreamTable,
)
from headwater.refresh.provenance import Provenance
from headwater.sinks.model import SinkState
from headwater.typedefs import SnapshotId, TableName

#: Stands for the snapshot that a commit is about to become.
THIS_COMMIT = -1


@dataclass(frozen=True)
class Recorded(RefreshResult):
    """A refresh as history has it. Refreshes in a row that found nothing to do are one row."""

    #: How many refreshes in a row this was.
    times: int = 1
    #: When the last of them was recorded; `started_at` is that of the first.
    recorded_at: datetime | None = None


def as_json(value: Any) -> str:
    """Any plain data as JSON that PostgreSQL takes."""
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return _plain(value.value)
        case str():
            # PostgreSQL stores neither NUL nor half a character; messages of other programs may hold them.
            return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return value.isoformat()
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case _:
            return str(value)


# -- to rows -------------------------------------------------------------------------------------------------


def stream_row(stream: StreamTable, table_ids: Mapping[TableName, int]) -> dict[str, Any]:
    """Parameters that store a stream table; `table_ids` are those of tables made by the same commit."""
    stages = [
        {
            "source": stage.source,
            "table_id": stage.table_id if stage.table_id >= 0 else table_ids[stage.table],
            "schema": stage.table.schema,
            "table": stage.table.name,
            "key": stage.key,
        }
        for stage in stream.stages
    ]
    return {
        "id": stream.id,
        "schema": stream.name.schema,
        "name": stream.name.name,
        "definition": definition_json(stream.definition),
        "status": stream.status.value,
        "stages": as_json(stages),
        "columns": as_json(stream.columns),
        "upstream": as_json(stream.upstream),
        "traits": traits_json(stream, table_ids),
        "failures": stream.failures,
        "last_error": None if stream.last_error is None else _plain(stream.last_error),
        "created_at": stream.created_at,
    }


def traits_json(stream: StreamTable, table_ids: Mapping[TableName, int]) -> str:
    """What is known of a stream table besides its definition and its columns."""
    published = _published(stream, table_ids)
    return as_json({"depends_on_time": stream.depends_on_time, "published": published})


def known_sinks(stream: StreamTable) -> dict[str, Any]:
    """What a refresh went by when it wrote the sinks of a stream table."""
    definition = stream.definition
    return {
        "options": definition.options,
        "sinks": definition.sinks,
        "published": _published(stream, {}),
    }


def _published(stream: StreamTable, table_ids: Mapping[TableName, int]) -> list[dict[str, Any]]:
    return [
        {
            "sink": one.sink,
            "table_id": one.table_id if one.table_id >= 0 else table_ids[one.table],
            "schema": one.table.schema,
            "table": one.table.name,
            "own": one.own,
        }
        for one in stream.published
    ]


def definition_json(definition: Definition) -> str:
    """A definition without its name, which has columns of its own."""
    return as_json(
        {
            "query": definition.query,
            "function": definition.function,
            "inputs": definition.inputs,
            "mode": definition.mode,
            "schedule": definition.schedule,
            "options": definition.options,
            "sinks": definition.sinks,
        }
    )


def settled(frontier: Frontier, snapshot: SnapshotId, table_ids: Mapping[TableName, int]) -> Frontier:
    """The frontier with the numbers that only the commit knows."""
    sources = tuple(
        replace(
            source,
            snapshot_id=_number(source.snapshot_id, snapshot),
            table_id=source.table_id if source.table_id >= 0 else table_ids[table_name(source.name)],
        )
        for source in frontier.sources
    )
    return replace(
        frontier,
        data_snapshot_id=_number(frontier.data_snapshot_id, snapshot),
        snapshot_id=_number(frontier.snapshot_id, snapshot),
        sources=sources,
    )


def refresh_row(result: RefreshResult, stream_id: str, snapshot: SnapshotId | None = None) -> dict[str, Any]:
    """A refresh as an object of the JSON array that statements read."""
    schema, name = table_name(result.name)
    row = {name: value for name, value in asdict(result).items() if name in REFRESH_COLUMNS}
    row |= {
        "stream_id": stream_id,
        "table_schema": schema,
        "table_name": name,
        "stages": [asdict(stage) for stage in result.stages],
        "predicted_incremental": result.prediction.incremental,
        "predicted_full": result.prediction.full,
        "refresh_id": result.refresh_id or str(uuid4()),
    }
    if snapshot is not None:
        for each in ("snapshot_id", "data_snapshot_id"):
            row[each] = None if row[each] is None else _number(row[each], snapshot)
    return row


def sink_row(stream_id: str, state: SinkState, snapshot: SnapshotId | None = None) -> dict[str, Any]:
    """How far a sink is, as an object of the JSON array that statements read."""
    row = {**asdict(state), "stream_id": stream_id}
    if snapshot is not None and state.snapshot_id is not None:
        row["snapshot_id"] = _number(state.snapshot_id, snapshot)
    return row


def sources_data(frontier: Frontier) -> list[dict[str, Any]]:
    """The positions of a frontier as plain data."""
    return [asdict(source) for source in frontier.sources]


def failure_text(result: RefreshResult) -> str | None:
    """What to show of a failure in one line; None if it was none."""
    if result.action is not Action.FAILED:
        return None
    message = (result.error or {}).get("message")
    return str(message or result.reason)


def _number(given: SnapshotId, snapshot: SnapshotId) -> SnapshotId:
    return snapshot if given == THIS_COMMIT else given


# -- from rows -----------------------------------------------------------------------------------------------


def stream_of(row: Sequence[Any]) -> StreamTable:
    """A stream table from a row of `STREAMS`."""
    identity, schema, name, given, status, stages, columns, upstream, traits, *rest = row
    failures, last_error, created, *at = rest
    definition = Definition(
        TableName(schema, name),
        given["query"],
        given["function"],
        given["inputs"],
        Mode(given["mode"]),
        given["schedule"],
        given["options"],
        given.get("sinks", {}),
    )
    frontier = None
    if at[0] is not None:
        frontier = Frontier(at[0], at[1], at[2], _positions(at[3]), behind=at[4])
    return StreamTable(
        id=str(identity),
        definition=definition,
        status=Status(status),
        stages=tuple(
            StoredStage(
                stage["source"],
                stage["table_id"],
                TableName(stage["schema"], stage["table"]),
                tuple(stage["key"]),
            )
            for stage in stages
        ),
        columns=tuple((column, kind) for column, kind in columns),
        upstream=tuple(upstream),
        frontier=frontier,
        depends_on_time=traits["depends_on_time"],
        failures=failures,
        last_error=last_error,
        created_at=created,
        published=tuple(
            PublishedTable(
                one["sink"], one["table_id"], TableName(one["schema"], one["table"]), bool(one["own"])
            )
            for one in traits.get("published", ())
        ),
        sink_states=tuple(map(_sink_state, at[5] or ())),
    )


def _sink_state(row: Mapping[str, Any]) -> SinkState:
    known = {each.name: row[each.name] for each in fields(SinkState)}
    for name in ("delivered_at", "failing_since", "next_try_at"):
        known[name] = None if known[name] is None else datetime.fromisoformat(known[name])
    return SinkState(**known)


def recorded_of(row: Sequence[Any]) -> Recorded:
    """A refresh from a row of `HISTORY`."""
    given = dict(zip((*REFRESH_COLUMNS, "times", "recorded_at"), row, strict=True))
    for name in ("stream_id", "table_schema", "table_name"):
        del given[name]
    prediction = Prediction(given.pop("predicted_incremental"), given.pop("predicted_full"))
    given["action"] = Action(given["action"])
    given["mode"] = Mode(given["mode"])
    given["stages"] = tuple(StageReport(**stage) for stage in given["stages"])
    return Recorded(prediction=prediction, **given)


def provenance_of(row: Sequence[Any]) -> Provenance:
    """A provenance from a row of `PROVENANCE`."""
    stream_id, name, snapshot, data, refresh, wave, action, inserted, deleted, sources, written = row
    return Provenance(
        stream_id=str(stream_id),
        name=name,
        snapshot_id=snapshot,
        data_snapshot_id=data,
        refresh_id=refresh,
        wave_id=wave,
        action=Action(action),
        rows_inserted=inserted,
        rows_deleted=deleted,
        sources=_positions(sources),
        written_at=written,
    )


def _positions(given: Sequence[Mapping[str, Any]]) -> tuple[SourcePosition, ...]:
    return tuple(
        SourcePosition(
            each["table_id"],
            each["name"],
            each["snapshot_id"],
            tuple((name, kind) for name, kind in each.get("columns", ())),
        )
        for each in given
    )
