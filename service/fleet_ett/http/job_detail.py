"""One job's detail and ledger put together from its rows and the core's summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet_ett.core.job import told_by_attempts
from fleet_ett.core.ratios import ett
from fleet_ett.core.summary import AttemptSummary
from fleet_ett.http.figures import every_heading, job_figures, number, pairs, with_parts
from fleet_ett.http.incident_rows import incident_row
from fleet_ett.http.job_schemas import (
    Amount,
    AttemptRow,
    DataQuality,
    FailureRow,
    Identity,
    JobDetail,
    JobLedger,
    LedgerRow,
    Loss,
    SubMetrics,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet_ett.reads import Row

# An `unknown` above 1% of a job is shown as a warning (accounting.md, section 2).
UNKNOWN_WARNING = 0.01


def job_ledger(
    job: Row, cells: Sequence[Row], losses: Sequence[Row], groups: Sequence[Row], by: Sequence[str]
) -> JobLedger:
    """The ledger of a job in a window from its cells by heading, phase and component."""
    wall, gpu = _total(cells, "wall_ns"), _total(cells, "gpu_ns")
    settled, settled_gpu = _total(cells, "settled_wall_ns"), _total(cells, "settled_gpu_ns")
    productive = [cell for cell in cells if cell["heading"] == "productive"]
    return JobLedger(
        job=str(job["job"]),
        live=bool(job["live"]),
        as_of=_int_or_none(job["as_of"]),
        wall_ns=wall,
        gpu_ns=gpu,
        ett=ett(_total(productive, "wall_ns"), wall),
        ett_gpu_weighted=ett(_total(productive, "gpu_ns"), gpu),
        ett_settled=ett(_total(productive, "settled_wall_ns"), settled),
        headings=every_heading(_sums(cells, "heading", "wall_ns")),
        gpu_headings=every_heading(_sums(cells, "heading", "gpu_ns")),
        phases=_sums(cells, "phase", "wall_ns"),
        components=_losses(losses),
        settled_ns=settled,
        settled_gpu_ns=settled_gpu,
        provisional_ns=wall - settled,
        provisional_gpu_ns=gpu - settled_gpu,
        error=_text_or_none(job["error"]),
        by=list(by),
        items=[LedgerRow.model_validate(with_parts(row)) for row in groups],
    )


def job_detail(
    job: Row, cells: Sequence[Row], attempts: Sequence[Row], incidents: Sequence[Row]
) -> JobDetail:
    """The detail of a job; without a summary (not attributed yet) its figures are empty."""
    summary = job["summary"]
    told: Mapping[str, Any] = summary if isinstance(summary, dict) else {}
    figures = job_figures(job)
    more = _told_by_attempts(attempts, told) if told else {}
    metrics: Mapping[str, Any] = told.get("metrics", {}) | more
    figures.pop("late_ns", None)
    return JobDetail.model_validate(
        figures
        | {
            "headings": every_heading(_sums(cells, "heading", "wall_ns")),
            "gpu_headings": every_heading(_sums(cells, "heading", "gpu_ns")),
            "phases": {name: wall for name, (wall, _) in pairs(told.get("phases", {})).items()},
            "components": _job_losses(told),
            "l1": Identity.model_validate(metrics["l1"]) if metrics else None,
            "l2": {n: Amount(wall_ns=w, gpu_ns=g) for n, (w, g) in pairs(told.get("l2", {})).items()},
            "overlapped": told.get("overlapped", {}),
            "steps": told.get("steps", {}),
            "failures": told.get("failures", {}),
            "metrics": _sub_metrics(told, metrics) if metrics else None,
            "data_quality": _quality(job),
            "held_up_by": more.get("held_up_by", []),
            "flags": more.get("flags", []),
            "attempts": [_attempt(row) for row in attempts],
            "incidents": [incident_row(row) for row in incidents],
        }
    )


def _told_by_attempts(attempts: Sequence[Row], told: Mapping[str, Any]) -> dict[str, Any]:
    """What a job's stored summary leaves to those of its attempts."""
    summaries = []
    for row in attempts:
        assert isinstance(row["summary"], dict)
        summaries.append(AttemptSummary.from_json(row["summary"]))
    return told_by_attempts(summaries, meta_conflict=told["meta"]["conflict"])


def _quality(job: Row) -> DataQuality:
    unknown, wall = number(job, "unknown_wall_ns"), number(job, "wall_ns")
    share = ett(unknown, wall)
    warning = share is not None and share > UNKNOWN_WARNING
    return DataQuality(
        unknown_ns=unknown, unknown_share=share, warning=warning, late_ns=number(job, "late_ns")
    )


def _sub_metrics(told: Mapping[str, Any], metrics: Mapping[str, Any]) -> SubMetrics:
    known = {name: metrics[name] for name in SubMetrics.model_fields if name in metrics}
    share = ett(metrics["checkpoint_blocking_ns"], told["wall_ns"])
    more = {"replayed_steps": told["steps"]["replayed"], "checkpoint_blocking_share": share}
    return SubMetrics.model_validate(known | more)


def _job_losses(told: Mapping[str, Any]) -> dict[str, Loss]:
    direct, induced = pairs(told.get("components", {})), pairs(told.get("induced", {}))
    out = {}
    for name in sorted({*direct, *induced}):
        (wall, gpu), (cost, gpu_cost) = direct.get(name, (0, 0)), induced.get(name, (0, 0))
        out[name] = Loss(direct_ns=wall, direct_gpu_ns=gpu, induced_ns=cost, induced_gpu_ns=gpu_cost)
    return out


def _losses(rows: Sequence[Row]) -> dict[str, Loss]:
    return {
        str(row["component"]): Loss.model_validate({name: row[name] for name in Loss.model_fields})
        for row in rows
    }


def _attempt(row: Row) -> AttemptRow:
    told = row["summary"]
    assert isinstance(told, dict)
    headings = pairs(told["headings"])
    failure = told["failure"]
    known = {name: told[name] for name in AttemptRow.model_fields if name in told}
    return AttemptRow.model_validate(
        known
        | {
            "node_count": len(told["nodes"]),
            "headings": {name: wall for name, (wall, _) in headings.items()},
            "ett": ett(headings.get("productive", (0, 0))[0], told["wall_ns"]),
            "failure": failure
            and FailureRow.model_validate({n: failure[n] for n in FailureRow.model_fields}),
        }
    )


def _total(rows: Sequence[Row], name: str) -> int:
    return sum(number(row, name) for row in rows)


def _sums(rows: Sequence[Row], group: str, name: str) -> dict[str, int]:
    out: dict[str, int] = {}
    for row in rows:
        key = str(row[group])
        out[key] = out.get(key, 0) + number(row, name)
    return dict(sorted(out.items()))


def _int_or_none(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
