"""`fleet-ett rules`: render rules from objectives, or check objectives and say what they come to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_ett.errors import Invalid, NotFound
from fleet_ett.rules.durations import duration
from fleet_ett.rules.groups import Alert
from fleet_ett.rules.reading import read_objectives
from fleet_ett.rules.render import groups, render

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from fleet_ett.rules.objectives import Objectives


def rules(args: argparse.Namespace) -> int:
    """Run one action. Raises `Invalid` naming the file and key, `NotFound` for a file that cannot be read."""
    try:
        text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{args.file}: {error}"
        raise NotFound(msg) from None
    try:
        objectives = read_objectives(text)
    except Invalid as error:
        msg = f"{args.file}: {error.message}"
        raise Invalid(msg) from None
    if args.action == "check":
        print("\n".join(_told(objectives)))
        return 0
    out = render(objectives, kubernetes=args.kubernetes)
    if args.output is None:
        sys.stdout.write(out)
    else:
        Path(args.output).write_text(out, encoding="utf-8")
    return 0


def _told(objectives: Objectives) -> Iterator[str]:
    """The objectives and at which ETT their alerts fire, for whoever reviews them."""
    for one in objectives.clusters:
        yield f"{one.cluster}: ETT {one.ett:.1%}, told to {one.owner}"
        for burn in one.burns:
            yield (
                f"  {burn.severity}: ETT below {1 - burn.factor * (1 - one.ett):.1%} over {duration(burn.long_s)} and"
                f" {duration(burn.short_s)} (burn rate {burn.factor:g} of at most {1 / (1 - one.ett):.3g})"
            )
        for component, budget in one.budgets.items():
            least = min(burn.factor for burn in one.component_burns) * budget
            owner = objectives.owners[component]
            yield f"  {component} may lose {budget:.1%}, a ticket from {least:.1%}; told to {owner}"
        rest = 1 - one.ett - sum(one.budgets.values())
        yield f"  {rest:.1%} of the budget is nobody's"
    found = groups(objectives)
    alerts = sum(isinstance(rule, Alert) for group in found for rule in group.rules)
    yield f"{sum(len(group.rules) for group in found)} rules in {len(found)} groups, {alerts} of them alerts"
