"""A compaction that kills itself in the middle. Run as a program: DSN, step."""

from __future__ import annotations

import sys

from headwater.lake.lake import Lake
from headwater.lake.maintenance.choosing import Wishes
from headwater.lake.maintenance.compacting import compact
from tests.lake.killed_writer import arm


def main(dsn: str, step: str) -> None:
    lake = Lake.open(dsn, create=False)
    arm(step)
    compact(lake, ["t"], Wishes(delete_ratio=0.0))


if __name__ == "__main__":
    main(*sys.argv[1:])
