"""How ETT and its losses go over time: always ratios of sums, never means of ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_S = 3600.0


def ett_by(cells: pd.DataFrame, freq: str = "D", by: Sequence[str] = ()) -> pd.DataFrame:
    """ETT by period (`freq` of pandas: "h", "D", "W" ...) and, if given, columns of the cells.

    Columns: `gpu_s`, `productive_gpu_s`, `ett` (0..1, weighted by GPU time; missing where none was held).
    """
    told = cells.assign(
        period=cells["hour"].dt.floor(freq) if freq != "W" else _week(cells["hour"]),
        productive_gpu_s=cells["gpu_s"].where(cells["heading"] == "productive", 0.0),
    )
    sums = told.groupby(["period", *by], observed=True)[["gpu_s", "productive_gpu_s"]].sum()
    sums["ett"] = sums["productive_gpu_s"] / sums["gpu_s"].where(sums["gpu_s"] > 0)
    return sums


def lost_by(cells: pd.DataFrame, what: str = "component", freq: str = "D") -> pd.DataFrame:
    """GPU-hours lost by period (rows) and component, phase or heading (columns, the dearest first)."""
    lost = cells[cells["heading"] != "productive"]
    period = lost["hour"].dt.floor(freq) if freq != "W" else _week(lost["hour"])
    table = lost.assign(period=period, gpu_h=lost["gpu_s"] / HOUR_S).pivot_table(
        index="period", columns=what, values="gpu_h", aggfunc="sum", fill_value=0.0
    )
    dearest = table.sum().sort_values(ascending=False, kind="stable").index
    return table[dearest]


def _week(hours: pd.Series[pd.Timestamp]) -> pd.Series[pd.Timestamp]:
    """The Monday, 0:00 UTC, of each stamp."""
    days = hours.dt.floor("D")
    return days - pd.to_timedelta(days.dt.day_of_week, unit="D")
