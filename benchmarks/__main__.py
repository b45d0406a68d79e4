"""Run the benchmarks: `python -m benchmarks [--only NAME] [--quick] [--all] [--scale 0.1]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks import (
    bulk_append,
    capture,
    compaction,
    deltas,
    latency,
    lone_writer,
    playbook_inserts,
    rows,
    scan_planning,
    single_row_appends,
    spark_append,
    spark_deletes,
    spark_merge,
    spark_pruning,
    spark_tpch,
    stream_scaling,
    stream_single,
    stream_tpch,
)
from benchmarks.environment import Environment, environment
from benchmarks.measure import Result

BENCHMARKS: dict[str, Callable[[Environment], Iterator[Result]]] = {
    "single_row_appends": single_row_appends.run,
    "scan_planning": scan_planning.run,
    "bulk_append": bulk_append.run,
    "lone_writer": lone_writer.run,
    "rows": rows.run,
    "playbook_inserts": playbook_inserts.run,
    "latency": latency.run,
    "capture": capture.run,
}
#: Their data is as large as a scale says.
SPARK_BENCHMARKS: dict[str, Callable[[Environment, float], Iterator[Result]]] = {
    "spark_pruning": spark_pruning.run,
    "spark_deletes": spark_deletes.run,
    "spark_append": spark_append.run,
    "spark_merge": spark_merge.run,
    "deltas": deltas.run,
    "compaction": compaction.run,
    "spark_tpch": spark_tpch.run,
    "playbook_spark": playbook_inserts.run_spark,
    "stream_single": stream_single.run,
    "stream_tpch": stream_tpch.run,
    "stream_scaling": stream_scaling.run,
}
#: What is enough to see that they run.
QUICK_SCALE = 0.02


def main(arguments: list[str] | None = None) -> int:
    """0 if every target is met, 1 if one is missed."""
    names = [*BENCHMARKS, *SPARK_BENCHMARKS]
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that everything runs")
    parser.add_argument("--scale", type=float, help="size of the Spark benchmarks' data; targets are for 1")
    parser.add_argument(
        "--share", action="append", type=float, help="how much changes in stream_tpch; 0.001, 0.01 and 0.1"
    )
    parser.add_argument("--all", action="store_true", help="the largest data too: ten times the scale")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    scale = options.scale or (QUICK_SCALE if options.quick else 1.0)
    results: list[Result] = []
    with environment(quick=options.quick, shares=options.share and tuple(options.share)) as place:
        for name in options.only or names:
            print(f"{name} …", file=sys.stderr, flush=True)
            found = BENCHMARKS[name](place) if name in BENCHMARKS else SPARK_BENCHMARKS[name](place, scale)
            if options.all and name == "stream_scaling":
                found = chain(found, stream_scaling.run(place, 10 * scale))
            for result in found:
                # A run takes long: what is known is said at once.
                print(f"  {result.ratio:.2f}x  {result.name} / {result.against}", file=sys.stderr, flush=True)
                results.append(result)
    if options.output == "json":
        print(json.dumps([result.as_dict() for result in results], indent=2))
    else:
        _print(results)
    return 1 if any(result.ok is False for result in results) else 0


def _print(results: Iterable[Result]) -> None:
    # Where the output is not a terminal, lines are as long as they need to be.
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("benchmark", "against")
    for name in ("ours", "theirs", "ratio", "spread", "target", "ok"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            result.name,
            result.against,
            _shown(median(result.ours), result.unit),
            _shown(median(result.theirs), result.unit),
            f"{result.ratio:.2f}x",
            f"{min(result.ratios):.2f}–{max(result.ratios):.2f}",
            "" if result.target is None else f"≤ {result.target:.2f}x",
            "" if result.ok is None else "[green]yes[/]" if result.ok else "[bold red]NO[/]",
        )
    console.print(table)
    console.print("Medians; the ratio is the median of the rounds' ratios. Lines without a target inform.")


def _shown(value: float, unit: str) -> str:
    return f"{value / 1e6:.1f} MB" if unit == "B" else _time(value)


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


if __name__ == "__main__":
    sys.exit(main())
