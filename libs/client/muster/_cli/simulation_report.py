"""Results side by side: a table with the best of each row marked, curves, and data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from rich.table import Table
from rich.text import Text

from muster._cli.output import Cell, table
from muster._cli.plots import Curve, Figure
from muster_core.simulation import SECOND, Measures, SimulationResult, completions, utilisation_over_time

_POINTS = 120
_HOUR_S = 3600.0
_MINUTE_S = 60.0


class _MeasureRow(msgspec.Struct, frozen=True):
    """A row of the table: how to read it from measures, how to format it, and whether less or more is better (None: neither)."""

    label: str
    value: Callable[[Measures], float]
    text: Callable[[float], str]
    less_is_better: bool | None


def _time(seconds: float) -> str:
    if seconds >= _HOUR_S:
        return f"{seconds / _HOUR_S:.2f} h"
    return f"{seconds / _MINUTE_S:.1f} min" if seconds >= _MINUTE_S else f"{seconds:.1f} s"


_ROWS: tuple[_MeasureRow, ...] = (
    _MeasureRow("mean completion", lambda m: m.completion.mean, _time, True),
    _MeasureRow("median completion", lambda m: m.completion.median, _time, True),
    _MeasureRow("p99 completion", lambda m: m.completion.p99, _time, True),
    _MeasureRow("mean wait", lambda m: m.wait.mean, _time, True),
    _MeasureRow("median wait", lambda m: m.wait.median, _time, True),
    _MeasureRow("p99 wait", lambda m: m.wait.p99, _time, True),
    _MeasureRow("makespan", lambda m: m.makespan_s, _time, True),
    _MeasureRow("GPU-hours held", lambda m: m.gpu_hours, lambda v: f"{v:,.1f}", True),
    _MeasureRow("utilisation", lambda m: m.utilisation, lambda v: f"{100 * v:.1f} %", None),
    _MeasureRow("restarts per job", lambda m: m.restarts, lambda v: f"{v:.2f}", True),
    _MeasureRow("evictions per job", lambda m: m.evictions, lambda v: f"{v:.2f}", True),
    _MeasureRow("resizes per job", lambda m: m.resizes, lambda v: f"{v:.2f}", None),
    _MeasureRow("max waiting", lambda m: m.max_waiting, lambda v: f"{v:.0f}", True),
    _MeasureRow("jobs that ended", lambda m: m.finished, lambda v: f"{v:.0f}", False),
    _MeasureRow("jobs that never ended", lambda m: m.unfinished, lambda v: f"{v:.0f}", True),
)


def comparison(results: Sequence[SimulationResult]) -> Table:
    """Return the measures of all ``results`` in columns; a star marks the best of a row."""
    rows = [_cells(row, results) for row in _ROWS]
    return table(("", *(result.policy for result in results)), rows, right={one.policy for one in results})


def figures(results: Sequence[SimulationResult]) -> list[Figure]:
    """Return the curves of completion times and of utilisation."""
    done = tuple(Curve(one.policy, _cumulated(completions(one.timelines))) for one in results)
    full = tuple(
        Curve(one.policy, tuple(utilisation_over_time(one.samples, gpus=one.gpus, points=_POINTS)))
        for one in results
    )
    found = [
        Figure(
            title="jobs completed within a time",
            x_label="completion (min)",
            curves=done,
            log_x=True,
            extends=True,
            x_unit=_MINUTE_S,
        )
    ]
    if any(curve.points for curve in full):
        found.append(Figure(title="GPUs held over time", x_label="time (h)", curves=full, x_unit=_HOUR_S))
    return found


def as_data(results: Sequence[SimulationResult], *, gpus: int, nodes: int) -> dict[str, object]:
    """Return everything as JSON values. Times are in seconds, GPUs in thousandths."""
    return {"cluster": {"nodes": nodes, "gpuMilli": gpus}, "results": [_result(result) for result in results]}


def _cells(row: _MeasureRow, results: Sequence[SimulationResult]) -> tuple[Cell, ...]:
    values = [row.value(result.measures) for result in results]
    best: float | None = None
    if row.less_is_better is not None and len({row.text(value) for value in values}) > 1:
        best = min(values) if row.less_is_better else max(values)
    cells: list[Cell] = [row.label]
    for value in values:
        is_best = best is not None and row.text(value) == row.text(best)
        cells.append(Text(f"{row.text(value)} *", style="bold green") if is_best else Text(row.text(value)))
    return tuple(cells)


def _cumulated(times: Sequence[float]) -> tuple[tuple[float, float], ...]:
    number = len(times)
    step = max(number // 1000, 1)
    kept = sorted({*range(0, number, step), number - 1} - {-1})
    return tuple((times[i], (i + 1) / number) for i in kept)


def _result(result: SimulationResult) -> dict[str, object]:
    measures = result.measures
    return {
        "policy": result.policy,
        "jobs": measures.jobs,
        "finished": measures.finished,
        "unfinished": measures.unfinished,
        "failed": measures.failed,
        "completionSeconds": _spread(measures, "completion"),
        "waitSeconds": _spread(measures, "wait"),
        "makespanSeconds": measures.makespan_s,
        "gpuHours": measures.gpu_hours,
        "utilisation": measures.utilisation,
        "restartsPerJob": measures.restarts,
        "evictionsPerJob": measures.evictions,
        "resizesPerJob": measures.resizes,
        "maxWaiting": measures.max_waiting,
        "utilisationOverTime": [
            {"seconds": at, "share": round(share, 4)}
            for at, share in utilisation_over_time(result.samples, gpus=result.gpus, points=_POINTS)
        ],
        "perJob": [
            {
                "job": timeline.job_id,
                "submitted": _seconds(timeline.submitted_at),
                "placed": _seconds(timeline.placed_at),
                "running": _seconds(timeline.running_at),
                "finished": _seconds(timeline.finished_at),
                "outcome": timeline.outcome.value if timeline.outcome else None,
                "waited": _seconds(timeline.waited_us),
                "gpuSeconds": _seconds(timeline.gpu_us),
                "restarts": timeline.restarts,
                "evictions": timeline.evictions,
                "resizes": timeline.resizes,
                "largest": timeline.largest,
            }
            for timeline in result.timelines
        ],
    }


def _spread(measures: Measures, name: str) -> dict[str, float]:
    spread = measures.completion if name == "completion" else measures.wait
    return {"mean": spread.mean, "median": spread.median, "p99": spread.p99, "max": spread.max}


def _seconds(instant: int | None) -> float | None:
    return None if instant is None else instant / SECOND
