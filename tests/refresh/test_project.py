"""A folder of stream tables: what is read, in which order, and what errors point at."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError, NotFoundError, QueryError, SettingsError, UnsupportedError
from headwater.refresh.model import Mode
from headwater.refresh.options import check_option, parse_schedule, settle
from headwater.refresh.project import load_project
from headwater.typedefs import TableName


def write(folder: Path, **files: str) -> Path:
    """Files of a project by path, with __ for the folders."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".sql")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(folder: Path) -> list[str]:
    return [str(file.name) for file in load_project(folder).files]


def failure(folder: Path) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as caught:
        load_project(folder)
    return caught.value


def test_a_file_with_a_header(tmp_path: Path) -> None:
    write(
        tmp_path,
        any="-- Revenue of the shop.\n"
        "-- name: sales.revenue_by_region\n-- schedule: 5S\n--   mode:  strict  \n\n"
        "/* option max_failures: 7\n * option ducklake_sink_mode: Merge\n   See: the wiki */\n"
        "SELECT region, sum(amount) AS revenue -- of all time\nFROM sales.orders GROUP BY region;\n-- bye\n",
    )
    project = load_project(tmp_path, "shop")
    (file,) = project.files
    definition = file.definition
    assert definition.name == TableName("sales", "revenue_by_region")
    assert (definition.schedule, definition.mode) == ("5s", Mode.STRICT)
    assert definition.options == {"max_failures": "7", "ducklake_sink_mode": "merge", "project": "shop"}
    assert definition.query is not None
    assert definition.query.startswith("SELECT region")
    assert definition.query.endswith("GROUP BY region")
    assert file.reads == (TableName("sales", "orders"),)


def test_names_come_from_the_path_unless_the_header_names_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        top="SELECT 1 AS a",
        sales__revenue="SELECT 1 AS a",
        deep__er__still="-- name: `a b`.c\nSELECT 1",
    )
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.sql").write_text("nonsense")
    (tmp_path / "notes.txt").write_text("nonsense")
    assert names(tmp_path) == ['"a b".c', "main.top", "sales.revenue"]


def test_the_project_is_called_like_its_folder(tmp_path: Path) -> None:
    (tmp_path / "shop" / "streams").mkdir(parents=True)
    assert load_project(tmp_path / "shop").name == "shop"
    assert load_project(tmp_path / "shop" / "streams").name == "shop"
    assert load_project(tmp_path / "shop", "other").name == "other"


def test_files_are_ordered_by_what_they_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        a__a="SELECT * FROM b.b JOIN lake.main.C USING (id)",
        b__b="WITH a AS (SELECT * FROM raw.orders) SELECT * FROM a JOIN D USING (id)",
        c="SELECT * FROM d",
        d="SELECT * FROM raw.orders",
    )
    assert names(tmp_path) == ["main.d", "b.b", "main.c", "a.a"]
    project = load_project(tmp_path)
    assert [str(file.name) for file in project.upstream(project.files[-1])] == ["b.b", "main.c"]


def test_a_circle_is_refused(tmp_path: Path) -> None:
    write(tmp_path, a="SELECT * FROM b", b="SELECT * FROM c", c="SELECT * FROM a", d="SELECT 1")
    error = failure(tmp_path)
    assert error.message.startswith("Stream tables read each other in a circle: ")
    order = error.message.partition(": ")[2].rstrip(".").split(" reads ")
    assert order[0] == order[-1]
    reads = {"main.a": "main.b", "main.b": "main.c", "main.c": "main.a"}
    assert all(reads[one] == other for one, other in pairwise(order))
    write(tmp_path, a="SELECT * FROM a", b="SELECT 1", c="SELECT 1")
    assert "main.a reads main.a" in failure(tmp_path).message


def test_one_name_for_two_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, a="SELECT 1", other="-- name: main.A\nSELECT 2")
    error = failure(tmp_path)
    assert error.place == f"{tmp_path}/other.sql:1:1"
    assert str(tmp_path / "a.sql") in error.message


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("-- shedule: 5s\nSELECT 1", (1, 4), "There is no key `shedule`.", "Did you mean 'schedule'?"),
        ("\n/* all\n  nme: x */ SELECT 1", (3, 3), "There is no key `nme`.", "Did you mean 'name'?"),
        (
            "-- option sinc: ducklake\nSELECT 1",
            (1, 4),
            "There is no key `option sinc`.",
            "Did you mean 'option sink'?",
        ),
        ("-- sink: ducklake\nSELECT 1", (1, 4), "There is no key `sink`.", "Did you mean 'option sink'?"),
        (
            "-- refresh_mode: auto\nSELECT 1",
            (1, 4),
            "There is no key `refresh_mode`.",
            "Did you mean 'mode'?",
        ),
        ("-- mode: auto\n-- mode: full\nSELECT 1", (2, 4), "`mode` is there twice.", ""),
        ("-- mode: fast\nSELECT 1", (1, 10), "'fast' is no value of refresh_mode.", "auto, incremental"),
        ("-- schedule: soon\nSELECT 1", (1, 14), "'soon' is no value of schedule.", "'5s'"),
        ("-- schedule:\nSELECT 1", (1, 4), "`schedule` has no value.", ""),
        ("-- name: a.b.c\nSELECT 1", (1, 10), "'a.b.c' is not a name.", ""),
        ("-- name: a b\nSELECT 1", (1, 10), "'a b' is not a name.", "backticks"),
        ("-- only: comments", (1, 18), "There is no query in the file.", ""),
        ("", (1, 1), "There is no query in the file.", ""),
        ("SELECT 'a", (1, 8), "What begins here is never closed.", ""),
        ("CREATE STREAM TABLE x AS SELECT 1", (1, 1), "The file holds a statement.", "SELECT"),
        ("-- mode: auto\nSELECT a b c\nFROM t", (2, 12), "The query cannot be read", ""),
    ],
)
def test_errors_point_at_their_place(
    tmp_path: Path, text: str, place: tuple[int, int], message: str, hint: str
) -> None:
    write(tmp_path, a=text)
    error = failure(tmp_path)
    assert error.message.startswith(f"{tmp_path}/a.sql:{place[0]}:{place[1]}: {message}")
    assert hint in (error.hint or "")


def test_comments_for_people_are_left_alone(tmp_path: Path) -> None:
    write(
        tmp_path,
        a="-- Note: this is it\n-- see http://x.y/z: all\n-- a draft: no\n-- (c): me\nSELECT 1 -- mode: x",
    )
    assert load_project(tmp_path).files[0].definition.mode is Mode.AUTO


def test_deep_files_need_a_name(tmp_path: Path) -> None:
    write(tmp_path, a__b__c="SELECT 1")
    assert failure(tmp_path).hint == "Add `-- name: schema.name`."


def test_all_files_that_are_wrong_are_told(tmp_path: Path) -> None:
    write(tmp_path, a="SELECT 1 +", b="-- mod: x\nSELECT 1", c="SELECT 1")
    (tmp_path / "d.sql").write_bytes(b"SELECT '\xff'")
    error = failure(tmp_path)
    assert error.message == "3 files of the project cannot be used."
    assert [problem["file"] for problem in error.problems] == [str(tmp_path / f"{n}.sql") for n in "abd"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        load_project(tmp_path / "nothing")


def test_errors_of_the_query_become_errors_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, a="-- mode: auto\n\n  SELECT a\n  FROM b")
    (file,) = load_project(tmp_path).files
    moved = file.located(QueryError("No b.", line=2, column=8, fragment="b"))
    assert moved.message == f"{tmp_path}/a.sql:4:8: No b."
    assert (moved.line, moved.column) == (4, 8)
    other = NotFoundError("Nothing.")
    assert file.located(other) is other


@pytest.mark.parametrize(
    ("text", "kind", "seconds"),
    [
        ("5s", "every", 5),
        (" 10 M ", "every", 600),
        ("1h", "every", 3600),
        ("2d", "every", 172800),
        ("downstream", "downstream", None),
        ("DOWNSTREAM", "downstream", None),
        ("On  Change", "change", None),
        ("* * * * *", "cron", None),
        ("*/5 8-18 1,15 jan-mar mon", "cron", None),
        ("0 0 * * 7", "cron", None),
        ("0-30/10 0 * * sun-sat", "cron", None),
    ],
)
def test_schedules(text: str, kind: str, seconds: int | None) -> None:
    found = parse_schedule(text)
    assert (found.kind, found.seconds) == (kind, seconds)
    assert parse_schedule(found.text) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", "0s", "5", "5x", "-5s", "1.5h", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *"),
        *("* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *", "1-2-3 * * * *"),
        *("a * * * *", "* * * mon *", ", * * * *"),
    ],
)
def test_schedules_that_are_none(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_schedule(text)
    assert caught.value.option == "schedule"


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("sink", "kafka", SettingsError),
        ("sink", "ducklake, kafka", SettingsError),
        ("sink", "", SettingsError),
        ("ducklake_sink_mode", "append", SettingsError),
        ("ducklake_sink_path", "ftp://a/b", UnsupportedError),
        ("ducklake_sink_table_id", "x", SettingsError),
        ("ducklake_sink_table", "_headwater.x", SettingsError),
        ("ducklake_sink_catalog", "postgresql://a:b@[::1/x", SettingsError),
        ("ducklake_sink_s3_region", " ", SettingsError),
        ("postgres_sink_dsn", "nonsense", SettingsError),
        ("nondeterministic", "maybe", SettingsError),
        ("max_failures", "0", SettingsError),
        ("max_failures", "many", SettingsError),
        ("refresh_mode", "autp", SettingsError),
        ("max_failure", "1", SettingsError),
    ],
)
def test_options_that_cannot_be_used(name: str, value: str, kind: type[HeadwaterError]) -> None:
    with pytest.raises(kind) as caught:
        check_option(name, value)
    assert caught.value.hint


def test_an_unknown_codec_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert check_option("ducklake_sink_compression", "snapy") == "snappy"
    assert "snapy" in caplog.text


def test_null_sets_an_option_back() -> None:
    settled = settle({"schedule": None, "refresh_mode": None, "Max_Failures": "9", "nondeterministic": None})
    assert (settled.schedule, settled.schedule_given, settled.mode) == (None, True, Mode.AUTO)
    assert settled.options == {"max_failures": "9", "nondeterministic": "refuse"}
    assert not settle({}).schedule_given
    with pytest.raises(SettingsError):
        settle({"nothing": None})
