"""Objectives: what they come to, and what is refused with which explanation."""

from __future__ import annotations

import pytest

from fleet_ett.errors import Invalid
from fleet_ett.rules.durations import duration, seconds
from fleet_ett.rules.reach import usual_burns
from fleet_ett.rules.reading import read_objectives


def refused(text: str) -> str:
    with pytest.raises(Invalid) as told:
        read_objectives(text)
    return told.value.message


@pytest.mark.parametrize("pct", [30, 50, 70, 80, 85, 90, 95, 99, 99.9])
def test_usual_burn_rates_can_fire_at_any_objective(pct: float) -> None:
    """Above 1, so not within the objective; below 1 / budget, so that a fleet in which something trains fires them."""
    read_objectives(f"clusters: {{default: {{ett_pct: {pct}}}}}")
    for burn in usual_burns(1 - pct / 100):
        assert 1 < burn.factor < 1 / (1 - pct / 100)


def test_usual_burn_rates_at_ninety_percent() -> None:
    """ETT below 50%, 75% and 88%; at 99% those of the SRE workbook."""
    assert [5, 2.5, 1.2] == [burn.factor for burn in usual_burns(0.1)]
    assert [14.4, 6, 1.2] == [burn.factor for burn in usual_burns(0.01)]


def test_the_workbooks_page_is_refused_at_ninety_percent() -> None:
    text = "clusters: {default: {ett_pct: 90, burn_rates: [{long: 1h, short: 5m, factor: 14.4}]}}"
    expected = "14.4 over 1h can never fire: with an objective of 0.9 the burn rate is at most 1 / 0.1 = 10"
    assert expected in refused(text)


@pytest.mark.parametrize(
    ("pct", "factor", "reason"),
    [
        (90, 10, "can never fire"),
        (85, 6.667, "can never fire"),
        (85, 6.5, "a fleet that stands still"),
        (90, 0.9, "fires although the objective is met"),
    ],
)
def test_burn_rates_out_of_reach(pct: float, factor: float, reason: str) -> None:
    assert reason in refused(f"clusters: {{default: {{ett_pct: {pct}, burn_rates: [{{factor: {factor}}}]}}}}")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("windows: [2m]", "holds too few evaluations"),
        ("period: 2d", "shorter than the period"),
        ("regressions: {past: 8h}", "at least twice now"),
        ("regressions: {for: 6h}", "nothing fires"),
        ("slow_evaluation_interval: 10m", "must not exceed 5m"),
        ("windws: [1h]", "did you mean windows?"),
        ("telemetry: {stuck_gpus: many}", "telemetry.stuck_gpus: a number"),
        ("owners: {gpus: me}", "owners.gpus: unknown"),
        ("url: [1]", "url: a line of text"),
        ("period: forever", "period: a duration such as"),
        ("period: 0s", "period: a duration such as"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_place(more: str, reason: str) -> None:
    assert reason in refused(f"clusters: {{default: {{ett_pct: 90}}}}\n{more}")


def test_budgets_must_fit_into_the_objective() -> None:
    told = refused("clusters: {default: {ett_pct: 90, budgets_pct: {data: 6, compiler: 5}}}")
    assert "may lose 0.11 of the time together, but an objective of 0.9 leaves 0.1" in told
    assert "one of scheduler" in refused("clusters: {default: {budgets_pct: {gpu: 1}}}")


def test_what_is_no_file_of_objectives() -> None:
    assert "clusters.default: expected" in refused("{}")
    assert "the file: keys and values" in refused("")
    assert "not YAML" in refused("a: [")
    assert "keys and values are expected" in refused("- a")
    assert "letters, digits" in refused("clusters: {default: {}, 'x\"} or vector(1) #': {}}")


def test_durations() -> None:
    assert 5400 == seconds("1h30m", "x")
    assert ["90m", "1d", "7d", "45s"] == [duration(one) for one in (5400, 86_400, 604_800, 45)]
