"""Columns of files that are kept in memory."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.lake.reading import kept_columns
from headwater.lake.reading.kept_columns import KeptColumns


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "f.parquet"
    rows = pa.table({name: pa.array([seed * n for n in range(100)]) for seed, name in enumerate("abc", 1)})
    pq.write_table(
        rows.append_column("s", pa.array([f"text {n}" for n in range(100)])), file, row_group_size=30
    )
    return str(file)


@pytest.mark.parametrize("most_bytes", [0, 1500, 1 << 20])
def test_what_is_kept_is_what_the_file_has_and_never_too_much(path: str, most_bytes: int) -> None:
    kept, dice = KeptColumns(most_bytes), random.Random(most_bytes)
    for _ in range(60):
        groups = sorted(dice.sample(range(4), dice.randint(1, 4)))
        names = dice.sample(["a", "b", "c", "s"], dice.randint(1, 4))
        with pa.OSFile(path) as source:
            parquet = kept.open(path, source)
            found = kept.read(path, parquet, groups, names)
            assert found.equals(parquet.read_row_groups(groups, columns=names).select(names))
        assert 0 <= kept.bytes <= most_bytes


def test_what_is_kept_is_not_read_again(path: str) -> None:
    kept = KeptColumns()
    with pa.OSFile(path) as source:
        first = kept.read(path, kept.open(path, source), [0, 2], ["a", "s"])
    with pa.OSFile(path) as source:
        parquet = kept.open(path, source)
    # The file is closed by now.
    assert kept.read(path, parquet, [2], ["a"]).equals(first.select(["a"]).slice(30))


@pytest.mark.parametrize("most_bytes", [0, 1 << 20])
def test_what_is_known_of_files_does_not_grow_for_ever(
    path: str, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_columns, "_FOOTERS", 3)
    kept = KeptColumns(most_bytes)
    for number in range(10):
        with pa.OSFile(path) as source:
            parquet = kept.open(f"{path} {number}", source)
            assert list(kept.bounds(f"{path} {number}", parquet, "b").most) == [58, 118, 178, 198]
            column = kept.read(f"{path} {number}", parquet, [1], ["b"]).column(0)
            assert kept.in_order(f"{path} {number}", 1, "b", column.to_numpy())
    assert len(kept._footers) == len(kept._bounds) == 3
    assert len(kept._in_order) == len(kept._columns) == (10 if most_bytes else 0)


@pytest.mark.parametrize("seed", range(5))
def test_single_values_are_taken_of_what_is_here_or_was_picked(path: str, seed: int) -> None:
    """Right where it is said, and said where all row groups that are asked for are here."""
    kept, dice = KeptColumns(), random.Random(seed)
    everything = pq.read_table(path)
    with pa.OSFile(path) as source:
        parquet = kept.open(path, source)
        here = sorted(dice.sample(range(4), 2))
        kept.read(path, parquet, here, ["s"])
        for _ in range(40):
            at = np.array(sorted(dice.sample(range(100), dice.randint(1, 20))), np.int64)
            found = kept.taken(path, parquet.metadata, "s", at)
            assert (found is not None) == set((at // 30).tolist()).issubset(here)
            assert found is None or found.to_pylist() == everything.column("s").take(at).to_pylist()
            assert kept.taken(path, parquet.metadata, "a", at) is None
        kept.picked(path, everything.select(["a"]).take(at), at)
        again = kept.taken(path, parquet.metadata, "a", at)
        assert again is not None
        assert again.equals(everything.column("a").take(at))
        assert kept.taken(path, parquet.metadata, "b", at) is None
        assert kept.taken(path, parquet.metadata, "a", at[:-1]) is None
        assert kept.taken(f"{path} 2", parquet.metadata, "a", at) is None


@pytest.mark.parametrize(("most_bytes", "known"), [(1 << 20, 10), (250, 5), (0, 0)])
def test_what_was_picked_last_is_kept(path: str, most_bytes: int, known: int) -> None:
    kept, footer, rows = (
        KeptColumns(most_bytes),
        pq.read_metadata(path),
        pq.read_table(path, columns=["a", "b"]),
    )
    sets = [np.arange(first, first + 3) for first in range(10)]
    for at in sets:
        kept.picked(path, rows.take(at), at)
        assert kept.bytes <= most_bytes
    assert [kept.taken(path, footer, "b", at) is not None for at in sets] == [
        n >= 10 - known for n in range(10)
    ]
