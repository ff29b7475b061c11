"""Stories told as data, written out as what `promtool test rules` runs.

A story is the world of `world.yaml` for BEFORE minutes, then what the story changes, for AFTER minutes; at the end it
says which alerts fire. Keys of a story:

    story        what is told
    cluster      the name of its cluster (default c1)
    world        other rates from the beginning on (a name that is new adds a series)
    then         other rates after BEFORE minutes
    born         names whose series begin only then (with their first increment), not at 0
    absent       names that start with these are never there
    gap          minutes [from, to) without a sample of anything, after BEFORE minutes
    reset        minutes after BEFORE at which every counter begins anew at 0
    replicas     for each replica of the service the minutes [from, to) in which it is scraped
    lags         for each replica how many minutes older than the newest its figures are
    minutes      how long the second part is (default AFTER)
    fires        labels of all alerts that fire at the end; [] for none at any time after BEFORE

and `promql_expr_test` and `alert_rule_test` as promtool has them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
WORLD: dict[str, float] = yaml.safe_load((HERE / "world.yaml").read_text())
BEFORE, AFTER = 82, 30  # minutes
# The kind of a name -> metric, and the labels of its parts.
METRICS = {
    "gpu": ("ett_gpu_seconds_total", ("team", "heading")),
    "lost": ("ett_lost_gpu_seconds_total", ("component", "phase", "repeated")),
    "induced": ("ett_induced_gpu_seconds_total", ("component", "cause")),
    "failures": ("ett_failures_total", ("component", "cause", "kind")),
    "attempts": ("ett_attempts_total", ("team",)),
    "starts": ("ett_time_to_start_seconds_count", ()),
    "restarts": ("ett_time_to_recover_seconds_count", ()),
    "events": ("ett_events_total", ("result",)),
    "gpus": ("ett_gpus_allocated", ("team",)),
    "stuck": ("ett_gpus_without_progress", ("team",)),
    "ingest_lag": ("ett_ingest_lag_seconds", ()),
    "attribution_lag": ("ett_attribution_lag_seconds", ()),
    "up": ("up", ("job",)),
    "agent/behind": ("ett_agent_oldest_unsent_seconds", ()),
    "agent/dropped": ("ett_agent_dropped_total", ()),
}
OF_NO_CLUSTER = ("events", "ingest_lag", "attribution_lag", "up", "agent/behind", "agent/dropped")


def promtool_file(stories: list[dict[str, Any]], rules: Path) -> str:
    """Stories as a file for `promtool test rules`; rules run every other minute, which halves the time it takes."""
    tests = [_test(story) for story in stories]
    order = [group["name"] for group in yaml.safe_load(rules.read_text())["groups"]]
    told = {
        "rule_files": [str(rules)],
        "evaluation_interval": "2m",
        "group_eval_order": order,
        "tests": tests,
    }
    return yaml.safe_dump(told, sort_keys=False, width=1_000_000)


def _test(story: dict[str, Any]) -> dict[str, Any]:
    length = story.get("minutes", AFTER)
    ever, at_end = 'max_over_time(ALERTS{alertstate="firing"}[%dm])' % length, 'ALERTS{alertstate="firing"}'  # noqa: UP031
    expected = [
        {"labels": _labels("ALERTS", {"alertstate": "firing"} | told), "value": 1} for told in story["fires"]
    ]
    firing = {
        "expr": at_end if expected else ever,
        "eval_time": f"{BEFORE + length}m",
        "exp_samples": expected,
    }
    return {
        "name": story["story"],
        "interval": "1m",
        "input_series": list(_series(story, BEFORE + length)),
        "promql_expr_test": [firing, *story.get("promql_expr_test", [])],
        **({"alert_rule_test": story["alert_rule_test"]} if "alert_rule_test" in story else {}),
    }


def _series(story: dict[str, Any], minutes: int) -> Iterator[dict[str, str]]:
    rates = WORLD | story.get("world", {})
    then = story.get("then", {})
    for name in {**rates, **then}:
        if name.startswith(tuple(story.get("absent", ()))):
            continue
        values = list(_values(name, rates.get(name, 0), then.get(name, rates.get(name, 0)), story, minutes))
        kind = name.lstrip("=")
        lives = story.get("replicas", [[0, minutes + 1]])
        if kind.startswith(("up", "agent")):
            lives = lives[:1]
        for place, (first, last) in enumerate(lives):
            lag = story.get("lags", [0] * len(lives))[place]
            told = [*["_"] * lag, *values]
            shown = [one if first <= at < last else "_" for at, one in enumerate(told[: minutes + 1])]
            # a replica that is gone is stale at once: Prometheus marks what a scrape does not find any more
            if last <= minutes:
                shown[last] = "stale"
            yield {
                "series": _name(kind, story.get("cluster", "c1"), f"replica-{place}"),
                "values": " ".join(shown),
            }


def _values(name: str, before: float, after: float, story: dict[str, Any], minutes: int) -> Iterator[str]:
    """What is scraped each minute. A counter of the service rises; a name with `=` is a gauge."""
    total = 0.0
    for minute in range(minutes + 1):
        rate = before if minute <= BEFORE else after
        if minute == BEFORE + story.get("reset", minutes + 1):
            total = 0
        total = rate if name.startswith("=") else total + (rate if minute else 0)
        first, last = story.get("gap", (minutes, minutes))
        unborn = name in story.get("born", ()) and minute <= BEFORE
        hidden = unborn or BEFORE + first <= minute < BEFORE + last
        yield "_" if hidden else f"{total:g}" if total < 1e6 else f"{total:.0f}"


def _name(name: str, cluster: str, instance: str) -> str:
    kind = next(kind for kind in METRICS if name == kind or name.startswith(f"{kind}/"))
    metric, parts = METRICS[kind]
    values = name[len(kind) + 1 :].split("/") if parts else []
    labels = dict(zip(parts, values, strict=True))
    place = {} if kind in OF_NO_CLUSTER else {"cluster": cluster}
    return _labels(metric, place | labels | {"instance": instance})


def _labels(metric: str, labels: dict[str, str]) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inner}}}"
