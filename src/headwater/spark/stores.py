"""Which stores Spark's JVM can read and write by itself."""

from __future__ import annotations

from functools import cache
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headwater.storage.locations import parse_location
from headwater.storage.options import StorageOptions

#: How the JVM calls the stores that the lake knows by other names.
_JVM_SCHEMES = {"s3": "s3a", "gcs": "gs", "azure": "abfss"}


class JvmStores:
    """Locations of the lake as the JVM knows them."""

    def __init__(self, spark: SparkSession, options: StorageOptions):
        self._spark = spark
        self._options = options
        self._known = cache(self._has_driver)

    def reachable(self, location: str) -> bool:
        """Whether the JVM has a driver for the store of this location."""
        kind = parse_location(location).kind
        return kind == "local" or self._known(kind)

    def path(self, location: str) -> str:
        """The location as a Hadoop path."""
        place = parse_location(location)
        if place.is_local:
            return f"file://{place.path}"
        _, _, rest = location.partition("://")
        return f"{_JVM_SCHEMES[place.kind]}://{rest}"

    def _has_driver(self, kind: str) -> bool:
        jvm: Any = self._spark.sparkContext._jvm
        hadoop: Any = self._spark.sparkContext._jsc.hadoopConfiguration()
        try:
            jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(_JVM_SCHEMES[kind], hadoop)
        except Py4JJavaError:
            return False
        if kind == "s3":
            self._give_keys(hadoop)
        return True

    def _give_keys(self, hadoop: Any) -> None:
        """What the lake knows about S3, where the session has not been told otherwise."""
        found = self._options.resolved()
        said = {
            "fs.s3a.access.key": found.s3_access_key_id,
            "fs.s3a.secret.key": found.s3_secret_access_key,
            "fs.s3a.session.token": found.s3_session_token,
            "fs.s3a.endpoint": found.s3_endpoint,
            "fs.s3a.endpoint.region": found.s3_region,
            "fs.s3a.path.style.access": "true" if found.s3_url_style == "path" else None,
            "fs.s3a.connection.ssl.enabled": "false" if found.s3_use_ssl is False else None,
        }
        for name, value in said.items():
            if value is not None and hadoop.get(name) is None:
                hadoop.set(name, value)
