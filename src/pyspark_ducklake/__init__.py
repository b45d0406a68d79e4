"""Lets Spark find `format("ducklake")` by itself.

PySpark looks for installed modules named `pyspark_*` and registers their `DefaultSource`.
"""

from __future__ import annotations

from headwater.spark.datasource.place import OpenLake, Place
from headwater.spark.datasource.source import DuckLakeSource

__all__ = ["DefaultSource"]


class DefaultSource(DuckLakeSource):
    """`format("ducklake")`, with the project's settings for what options do not say."""

    def connect(self, place: Place, create: bool) -> OpenLake:
        """The lake of the options; without any, that of `headwater.yaml` or `HEADWATER_…`, as `connect()`."""
        # Late: Spark imports this module to see whether there is a data source in it.
        from headwater.engine.connecting import open_target, resolve
        from headwater.settings import load_settings

        settings = load_settings()
        target = resolve(
            settings,
            dsn=place.dsn,
            data_path=place.data_path,
            metadata_schema=place.metadata_schema,
            storage={**settings.storage, **place.storage} if place.storage else None,
        )
        # A new lake in a database that is there needs to be told where its files go.
        opened = open_target(
            target, settings, create=create and (target.dsn is None or bool(target.data_path))
        )
        folder = target.server_folder.absolute() if target.dsn is None else None
        return OpenLake(opened.lake, folder)
