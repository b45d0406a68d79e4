"""Calls about the delta store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.engine.facade.services import Services

if TYPE_CHECKING:
    from headwater.deltas.accumulated import AccumulatedLog
    from headwater.deltas.dataset import DeltaDataset
    from headwater.deltas.defining import Schema


class DeltaCalls(Services):
    """Datasets of the delta store."""

    def deltas(
        self,
        dataset: str,
        key: Sequence[str] | str | None = None,
        *,
        schema: Schema | None = None,
        adopt: bool = False,
    ) -> DeltaDataset | AccumulatedLog:
        """A dataset of the delta store: small changes beside a large base, folded in by `compact()`.

        It is made with `schema` (Arrow, or names with types), by its first delta, or with `adopt` out of the
        table of its name; it is opened again by its name alone. The name of a stream table with an
        `accumulate` sink opens the log of that.

        >>> people = hw.deltas("crm.people", key=["id"])  # doctest: +SKIP
        >>> people.write_delta([{"id": 7, "name": "Ann"}])  # doctest: +SKIP
        """
        return self.datasets.open(dataset, key, schema=schema, adopt=adopt)
