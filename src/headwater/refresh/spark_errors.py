"""What Spark finds wrong with the query of a stream table, as an error of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headwater.errors import QueryError

#: Places and plans that follow are of the statement that Spark was given, not of the one that was written.
_TAIL = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)


@contextmanager
def spark_errors(name: object) -> Iterator[None]:
    """While Spark looks at the query of a stream table, or runs it for the first time."""
    try:
        yield
    except PySparkException as error:
        said = _TAIL.sub("", (error.getMessage() or str(error)).strip()).splitlines()[0]
        raise QueryError(
            f"Spark cannot run the query of {name}.",
            detail=said,
            condition=error.getCondition(),
            line=None,
            column=None,
            fragment=None,
        ) from error
    except Py4JError as error:
        first = str(error).strip().splitlines()[0]
        raise QueryError(
            f"Spark failed to run the query of {name}.", detail=first, line=None, column=None, fragment=None
        ) from error
