"""The formulas of the field, with their sources. Times in seconds unless a name ends in `_ns`."""

from __future__ import annotations

from math import exp, expm1


def ett(productive: int, total: int) -> float | None:
    """ETT as a ratio 0..1: productive / total (Meta ETT%, pytorch.org 2026-04-17); None when total is 0."""
    return productive / total if total else None


def l1_identity(tts_ns: int, failures: int, mean_ttr_ns: float, wall_ns: int) -> float | None:
    """ETT = 1 - (TTS + NoF x TTR) / E2E (Meta ETT%, L1). None when the wall time is 0.

    Blocking saves, input stalls, evaluation and shutdown are not in it: the residual against the
    bottom-up figure names them.
    """
    return 1 - (tts_ns + failures * mean_ttr_ns) / wall_ns if wall_ns else None


def expected_ett(interval: float, write: float, restart: float, mttf: float) -> float:
    """The useful fraction that failures leave: exact renewal form (Daly 2006; arXiv 2410.21680 v2).

    `interval`: useful seconds between checkpoints, `write`: blocking seconds of one, `restart`: seconds
    from a failure to training again, `mttf`: mean seconds between failures of the job. All but `restart` and
    `write` must be above 0.
    """
    lost = restart / mttf
    cycle = (interval + write) / mttf
    if lost + cycle > 700:  # exp() would overflow: no checkpoint is ever reached
        return 0.0
    return interval / (mttf * exp(lost) * expm1(cycle))


def failures_per_thousand_node_days(failures: int, node_ns: int) -> float | None:
    """Failures per 1,000 node-days (arXiv 2410.21680); None without node time (`node_ns`: ns x nodes)."""
    return failures * 1000 * 86_400e9 / node_ns if node_ns else None
