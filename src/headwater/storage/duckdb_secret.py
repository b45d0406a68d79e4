"""The same credentials for DuckDB, so that it reads and writes the same lake."""

from __future__ import annotations

from headwater.errors import UnsupportedError
from headwater.storage.locations import parse_location
from headwater.storage.options import DEFAULT_REGION, StorageOptions
from headwater.typedefs import quote_name


def duckdb_secret(
    options: StorageOptions, scope: str, name: str = "headwater"
) -> tuple[str, list[str | bool]] | None:
    """The statement and its parameters that give a DuckDB connection access to `scope`.

    None when no secret is needed (local files). The connection needs the `httpfs` extension loaded:

        if secret := duckdb_secret(options, data_path):
            connection.execute(*secret)
    """
    place = parse_location(scope)
    if place.is_local:
        return None
    if place.kind != "s3":
        raise UnsupportedError(
            f"DuckDB cannot be given the credentials for {scope!r}",
            detail="its httpfs extension takes keys for S3 only",
            hint="create a DuckDB secret of your own on the connection",
            location=scope,
        )
    known = options.resolved()
    values: dict[str, str | bool | None] = {
        "KEY_ID": known.s3_access_key_id,
        "SECRET": known.s3_secret_access_key,
        "SESSION_TOKEN": known.s3_session_token,
        "REGION": known.s3_region or DEFAULT_REGION,
        "ENDPOINT": known.s3_endpoint,
        "URL_STYLE": known.s3_url_style,
        "USE_SSL": bool(known.s3_use_ssl),
        "SCOPE": scope,
    }
    if known.s3_access_key_id is None and not known.s3_anonymous:
        raise UnsupportedError(
            f"DuckDB needs keys to reach {scope!r}, and there are none",
            detail="the machine's own identity serves pyarrow but cannot be handed to DuckDB",
            hint="set s3_access_key_id and s3_secret_access_key, the AWS_… variables, or a profile with keys",
            location=scope,
        )
    given = {option: value for option, value in values.items() if value is not None}
    clauses = "".join(f", {option} ?" for option in given)
    return (
        f"CREATE OR REPLACE TEMPORARY SECRET {quote_name(name)} (TYPE s3, PROVIDER config{clauses})",
        list(given.values()),
    )
