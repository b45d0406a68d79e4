"""The tables of playbooks in PostgreSQL: runs, their steps and items, their events.

All times are by the server's clock where processes must agree on them: leases. Envelopes and errors are JSON
in columns of type text, because PostgreSQL's own JSON types refuse or reorder some of what JSON can say.
"""

from __future__ import annotations

from collections.abc import Sequence

COMPONENT = "playbooks"
#: The item of rows that are about a whole step.
WHOLE_STEP = -1

VERSIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE headwater.playbook_run (
            lake_id uuid NOT NULL, id uuid NOT NULL, name text NOT NULL, file text NOT NULL,
            digest text NOT NULL, workload text NOT NULL, given text, sealed text, status text NOT NULL,
            runner text NOT NULL, started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            ended_at timestamptz, error text, based_on uuid, from_step text, parent uuid,
            caller text, holder uuid, machine text, lease_until timestamptz, PRIMARY KEY (lake_id, id))""",
        "CREATE INDEX ON headwater.playbook_run (lake_id, started_at)",
        """CREATE TABLE headwater.playbook_step (
            lake_id uuid NOT NULL, run_id uuid NOT NULL, step text NOT NULL, visit int NOT NULL,
            item int NOT NULL, number int NOT NULL, attempt int NOT NULL, status text NOT NULL,
            envelope text, error text, vars text, next text[], loop text, started_at timestamptz,
            ended_at timestamptz, seconds double precision, worker text,
            PRIMARY KEY (lake_id, run_id, step, visit, item),
            FOREIGN KEY (lake_id, run_id) REFERENCES headwater.playbook_run ON DELETE CASCADE)""",
        """CREATE TABLE headwater.playbook_event (
            lake_id uuid NOT NULL, run_id uuid NOT NULL, number bigint NOT NULL, at timestamptz NOT NULL,
            name text NOT NULL, step text, visit int, item int, data text,
            PRIMARY KEY (lake_id, run_id, number),
            FOREIGN KEY (lake_id, run_id) REFERENCES headwater.playbook_run ON DELETE CASCADE)""",
    ),
)

BEGIN = """
    INSERT INTO headwater.playbook_run (lake_id, id, name, file, digest, workload, given, sealed, status,
        runner, based_on, from_step, parent, caller, holder, machine, lease_until)
    VALUES (%(lake)s, %(id)s, %(name)s, %(file)s, %(digest)s, %(workload)s, %(given)s, %(sealed)s, 'running',
        %(runner)s, %(based_on)s, %(from_step)s, %(parent)s, %(caller)s, %(holder)s, %(machine)s,
        clock_timestamp() + make_interval(secs => %(seconds)s))
    ON CONFLICT DO NOTHING"""

# Whoever finds the lease free has it; `dead` says that the holder is known to be gone.
TAKE = """
    UPDATE headwater.playbook_run SET holder = %(holder)s, machine = %(machine)s, status = 'running',
        ended_at = NULL, error = NULL, digest = %(digest)s,
        lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
    WHERE lake_id = %(lake)s AND id = %(id)s AND (holder = %(holder)s OR status <> 'running'
        OR lease_until <= clock_timestamp() OR holder = %(dead)s::uuid)
    RETURNING id"""

# Lost in a crash of the server, a beat is simply repeated.
RENEW = """
    UPDATE headwater.playbook_run SET lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
    WHERE lake_id = %(lake)s AND id = %(id)s AND holder = %(holder)s AND status = 'running' RETURNING id"""

HELD = """
    SELECT 1 FROM headwater.playbook_run
    WHERE lake_id = %(lake)s AND id = %(id)s AND holder = %(holder)s FOR UPDATE"""

FINISH = """
    UPDATE headwater.playbook_run SET status = %(status)s, error = %(error)s, ended_at = clock_timestamp(),
        lease_until = NULL, sealed = CASE WHEN %(status)s = 'done' THEN NULL ELSE sealed END
    WHERE lake_id = %(lake)s AND id = %(id)s AND holder = %(holder)s RETURNING id"""

STEP = """
    INSERT INTO headwater.playbook_step (lake_id, run_id, step, visit, item, number, attempt, status,
        envelope, error, vars, next, loop, started_at, ended_at, seconds, worker)
    VALUES (%(lake)s, %(run)s, %(step)s, %(visit)s, %(item)s, %(number)s, %(attempt)s, %(status)s,
        %(envelope)s, %(error)s, %(vars)s, %(next)s, %(loop)s, %(started_at)s, %(ended_at)s, %(seconds)s,
        %(worker)s)
    ON CONFLICT (lake_id, run_id, step, visit, item) DO UPDATE SET attempt = excluded.attempt,
        status = excluded.status, envelope = coalesce(excluded.envelope, playbook_step.envelope),
        error = excluded.error, vars = excluded.vars,
        next = excluded.next, loop = coalesce(excluded.loop, playbook_step.loop),
        started_at = excluded.started_at, ended_at = excluded.ended_at, seconds = excluded.seconds,
        worker = excluded.worker"""

EVENT = """
    INSERT INTO headwater.playbook_event (lake_id, run_id, number, at, name, step, visit, item, data)
    VALUES (%(lake)s, %(run)s, %(number)s, %(at)s, %(name)s, %(step)s, %(visit)s, %(item)s, %(data)s)
    ON CONFLICT DO NOTHING"""

_RUN_COLUMNS = """id::text, name, file, digest, workload, sealed, status, runner, started_at, ended_at, error,
        based_on::text, from_step, parent::text, holder::text, machine,
        coalesce(extract(epoch FROM lease_until - clock_timestamp()), 0)::float8, given"""

RUNS = f"""
    SELECT {_RUN_COLUMNS} FROM headwater.playbook_run
    WHERE lake_id = %(lake)s AND (%(file)s::text IS NULL OR file = %(file)s)
        AND (%(parents)s OR parent IS NULL)
    ORDER BY started_at DESC, id LIMIT %(limit)s"""

# A beginning of the id is enough, as long as it is one run's only.
RUN = f"""
    SELECT {_RUN_COLUMNS} FROM headwater.playbook_run
    WHERE lake_id = %(lake)s AND starts_with(id::text, %(id)s) ORDER BY started_at DESC LIMIT 2"""

# What a step of another run called, each time that step is done again.
CALLED = f"""
    SELECT {_RUN_COLUMNS} FROM headwater.playbook_run
    WHERE lake_id = %(lake)s AND parent = %(parent)s AND caller = %(caller)s
    ORDER BY started_at DESC LIMIT 1"""

_STEP_COLUMNS = """step, visit, item, number, attempt, status, error, vars, next, loop, started_at, ended_at,
        seconds, worker"""

STEPS = f"""
    SELECT {_STEP_COLUMNS} FROM headwater.playbook_step
    WHERE lake_id = %(lake)s AND run_id = %(run)s AND item = {WHOLE_STEP} ORDER BY number"""

ITEMS = f"""
    SELECT {_STEP_COLUMNS} FROM headwater.playbook_step
    WHERE lake_id = %(lake)s AND run_id = %(run)s AND step = %(step)s AND visit = %(visit)s
        AND item > %(after)s AND item > {WHOLE_STEP} AND (%(status)s::text IS NULL OR status = %(status)s)
    ORDER BY item LIMIT %(limit)s"""

DONE_ITEMS = f"""
    SELECT item FROM headwater.playbook_step
    WHERE lake_id = %(lake)s AND run_id = %(run)s AND step = %(step)s AND visit = %(visit)s
        AND item > {WHOLE_STEP} AND status = 'done'"""

ENVELOPES = """
    SELECT item, envelope FROM headwater.playbook_step
    WHERE lake_id = %(lake)s AND run_id = %(run)s AND step = %(step)s AND visit = %(visit)s
        AND item BETWEEN %(first)s AND %(last)s AND envelope IS NOT NULL ORDER BY item"""

# PostgreSQL knows the size of a long text without reading it.
SIZES = """
    SELECT item, octet_length(envelope) FROM headwater.playbook_step
    WHERE lake_id = %(lake)s AND run_id = %(run)s AND step = %(step)s AND visit = %(visit)s
        AND item BETWEEN %(first)s AND %(last)s AND envelope IS NOT NULL ORDER BY item"""

EVENTS = """
    SELECT number, name, at, step, visit, item, data FROM headwater.playbook_event
    WHERE lake_id = %(lake)s AND run_id = %(run)s AND number > %(after)s
        AND (%(items)s OR name <> 'loop.item')
    ORDER BY number LIMIT %(limit)s"""

LAST_EVENT = """
    SELECT coalesce(max(number), 0) FROM headwater.playbook_event
    WHERE lake_id = %(lake)s AND run_id = %(run)s"""
