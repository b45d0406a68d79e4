"""The service's own tables in PostgreSQL: leases, and a row per running process.

All times are by the server's clock, so that processes on several machines agree.
"""

from __future__ import annotations

from collections.abc import Sequence

COMPONENT = "service"
VERSIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE headwater.lease (
            lake_id uuid NOT NULL, name text NOT NULL, holder uuid NOT NULL, token bigint NOT NULL,
            expires_at timestamptz NOT NULL, PRIMARY KEY (lake_id, name))""",
        """CREATE TABLE headwater.service (
            lake_id uuid NOT NULL, id uuid NOT NULL, started_at timestamptz NOT NULL DEFAULT now(),
            beat timestamptz NOT NULL, expires_at timestamptz NOT NULL, working_on text NOT NULL DEFAULT '',
            limited_to text[], standing boolean NOT NULL, version text NOT NULL,
            PRIMARY KEY (lake_id, id))""",
    ),
)

BEAT = """
    INSERT INTO headwater.service (lake_id, id, beat, expires_at, working_on, limited_to, standing, version)
    VALUES (%(lake)s, %(me)s, clock_timestamp(), clock_timestamp() + make_interval(secs => %(seconds)s),
        %(working_on)s, %(only)s::text[], %(standing)s, %(version)s)
    ON CONFLICT (lake_id, id) DO UPDATE
    SET beat = excluded.beat, expires_at = excluded.expires_at, working_on = excluded.working_on"""

ALIVE = """
    SELECT id::text, limited_to FROM headwater.service
    WHERE lake_id = %(lake)s AND standing AND expires_at > clock_timestamp() ORDER BY id"""

PROCESSES = """
    SELECT id::text, started_at, beat, working_on, limited_to, standing, version,
        expires_at > clock_timestamp() AS alive
    FROM headwater.service WHERE lake_id = %(lake)s ORDER BY started_at"""

# A lease that ran out and that nobody took is still its last holder's: nothing happened in between.
RENEW = """
    UPDATE headwater.lease l SET expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
    FROM unnest(%(names)s::text[], %(tokens)s::bigint[]) AS mine (name, token)
    WHERE l.lake_id = %(lake)s AND l.name = mine.name AND l.holder = %(me)s AND l.token = mine.token
    RETURNING l.name, l.token"""

# Names in order, so that two processes that take several at once never wait for each other in a circle.
TAKE = """
    INSERT INTO headwater.lease AS l (lake_id, name, holder, token, expires_at)
    SELECT %(lake)s, name, %(me)s, 1, clock_timestamp() + make_interval(secs => %(seconds)s)
    FROM unnest(%(names)s::text[]) AS wanted (name) ORDER BY name
    ON CONFLICT (lake_id, name) DO UPDATE
    SET holder = excluded.holder, token = l.token + 1, expires_at = excluded.expires_at
    WHERE l.expires_at <= clock_timestamp() OR l.holder = excluded.holder
    RETURNING l.name, l.token"""

# The row stays, and with it the token: who held the lease before can be told from who holds it now.
RELEASE = """
    UPDATE headwater.lease SET expires_at = '-infinity'
    WHERE lake_id = %(lake)s AND holder = %(me)s AND (%(names)s::text[] IS NULL OR name = ANY(%(names)s))"""

LEAVE = "DELETE FROM headwater.service WHERE lake_id = %(lake)s AND id = %(me)s"

TIDY = (
    "DELETE FROM headwater.service WHERE lake_id = %(lake)s"
    " AND expires_at < clock_timestamp() - interval '1 day'",
    "DELETE FROM headwater.lease WHERE lake_id = %(lake)s AND expires_at > '-infinity'"
    " AND expires_at < clock_timestamp() - interval '30 days'",
)

NEWEST = "SELECT max(snapshot_id) FROM {ducklake_snapshot}"

CHANGES = """
    SELECT s.snapshot_id, s.snapshot_time, c.changes_made
    FROM {ducklake_snapshot} s LEFT JOIN {ducklake_snapshot_changes} c USING (snapshot_id)
    WHERE s.snapshot_id > %(since)s ORDER BY s.snapshot_id LIMIT %(limit)s"""
