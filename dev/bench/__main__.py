"""Run the rows, print them as they come, keep them in build/bench.json; exit 1 when one misses its bound."""

import sys

from dev.bench import (
    appends,
    console,
    documents,
    edge,
    followers,
    frames,
    hops,
    nodes,
    orchestrations,
    polls,
    postgres,
    reads,
    runtime,
    scaling,
    servers,
    stalls,
    start,
    subscriptions,
)
from dev.bench.data import BUILD
from dev.bench.rows import Case, Row, measured
from dev.bench.table import Progress, Table, save
from parley.app import tune_interpreter


def chosen(names: list[str]) -> list[Case]:
    groups = (
        start,
        appends,
        reads,
        followers,
        subscriptions,
        polls,
        servers,
        frames,
        documents,
        hops,
        edge,
        runtime,
        nodes,
        orchestrations,
        console,
        postgres,
        scaling,
        stalls,
    )
    cases = [case for group in groups for case in group.cases()]
    picked = [case for case in cases if not names or case.name.startswith(tuple(names))]
    if not picked:
        sys.exit(
            f"bench: no row starts with {' or '.join(names)}; known rows: {', '.join(case.name for case in cases)}"
        )
    return picked


def main(names: list[str]) -> int:
    cases = chosen(names)
    tune_interpreter()
    table = Table()
    rows: list[Row] = []
    for case in cases:
        with Progress() as progress:
            row = measured(case, progress.show)
        rows.append(row)
        table.print(row)
        # After each row, so that a run which is broken off has not been for nothing.
        save(rows, BUILD / "bench.json")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
