"""The benches of a large fleet, one after the other, as one table: `python -m tests.bench.fleet [--quick]`.

Each bench is a program of its own, whose output is kept in a folder; its figures are read from there. `--quick` runs
small ones, to see that all of them work: its figures say nothing. Exits with 1 where a bench found something wrong, or
a figure missed its goal.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: where a bench's output has it (the last group), its unit, and within which bounds it should be."""

    what: str
    bench: str
    pattern: str
    unit: str
    least: float = 0
    most: float = float("inf")

    @property
    def goal(self) -> str:
        """The bounds in words."""
        if self.least:
            return f">= {self.least:g}"
        return "" if self.most == float("inf") else f"<= {self.most:g}"


QUICK = {
    "ingest": "--events 40000 --nodes 64",
    "overload": "--clients 8 --seconds 8",
    "attribution": "--attempts 20 --rounds 3 --fleet-rounds 1",
    "freshness": "--jobs 20 --rate 100 --seconds 10 --history 60",
    "readers": "--jobs 50 --days 2 --rounds 3",
    "scrape": "--jobs 10 50 --rounds 5",
    "outage": "--agents 50 --live 20 --rate 5",
}
N = r"([\d.,]+|inf)"
ROWS = (
    Row("HTTP to durable, bulk form", "ingest", rf"^bulk form +{N} +{N}%", "% of COPY", least=60),
    Row("HTTP to durable, rows", "ingest", rf"^row form +{N} +{N}%", "% of COPY", least=25),
    Row("bulk, 10% sent again", "ingest", rf"^bulk, 10% sent again +{N} +{N}%", "% of COPY", least=40),
    Row("restart burst, until booked", "ingest", rf"^booked after +{N} s", "s", most=20),
    Row("memory under overload, at first", "overload", rf"^memory: .*; {N} at most", "MiB", most=1024),
    Row("memory under overload, later", "overload", rf"^ +{N} in the second", "MiB", most=1024),
    Row("a booking, many attempts against 1", "attribution", rf"^\d+ +{N} +{N} +{N} +1\.2$", "x", most=1.2),
    Row("accepted until booked, p95", "freshness", rf"^in its job's books after +\d+ +{N} +{N}", "s", most=5),
    Row("fleet readers beyond their goal", "readers", rf"^beyond the goal: {N}", "questions", most=0),
    Row("a scrape, 10,000 live jobs, p95", "scrape", rf"^p95 of the last: {N} ms", "ms", most=50),
    Row("agents back: drained", "outage", rf"^drained after +{N} s", "s"),
    Row(
        "agents back: live posts, p95",
        "outage",
        rf"^live posts, .* {N} s +{N} s +\S+ s +5\.0 s$",
        "s",
        most=5,
    ),
    Row("agents back: lost or doubled", "outage", rf"^lost or doubled +{N}", "events", most=0),
)


def run(bench: str, options: list[str], folder: Path) -> tuple[str, int]:
    """What a bench printed, and its exit code; the output is kept in the folder, errors too."""
    with (folder / f"{bench}.txt").open("w") as out, (folder / f"{bench}.err").open("w") as errors:
        command = (sys.executable, "-m", f"tests.bench.{bench}", *options)
        code = subprocess.run(command, cwd=ROOT, stdout=out, stderr=errors, check=False).returncode
    return (folder / f"{bench}.txt").read_text(), code


def figure(row: Row, output: str) -> float | None:
    """The figure of a row; None where the output does not have it."""
    found = re.search(row.pattern, output, re.MULTILINE)
    return None if found is None else float(found[found.lastindex or 0].replace(",", ""))


def main() -> None:
    """Run the benches, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small runs: whether everything works")
    parser.add_argument("--only", choices=QUICK, action="append", help="these benches; may be repeated")
    parser.add_argument("--out", type=Path, help="the folder for what each printed (default: a new one)")
    args = parser.parse_args()
    folder = args.out or Path(tempfile.mkdtemp(prefix="ett-bench-fleet-"))
    folder.mkdir(parents=True, exist_ok=True)
    outputs, failed = {}, []
    for bench in args.only or QUICK:
        begin = time.perf_counter()
        outputs[bench], code = run(bench, QUICK[bench].split() if args.quick else [], folder)
        failed += [bench] if code else []
        print(
            f"... {bench}: {time.perf_counter() - begin:.0f} s, exit code {code}", file=sys.stderr, flush=True
        )
    is_well = not failed
    print(f"{'what':38}{'found':>10} {'':10}{'goal':>8}")
    for row in ROWS:
        if row.bench in outputs:
            found = figure(row, outputs[row.bench])
            is_met = found is not None and row.least <= found <= row.most
            shown = "nothing" if found is None else f"{found:,g}"
            print(f"{row.what:38}{shown:>10} {row.unit:10}{row.goal:>8}{'' if is_met else '  missed'}")
            is_well = is_well and is_met
    for bench in failed:
        print(f"{bench} found something wrong, or broke: {folder / bench}.txt, .err")
    print(f"what each printed is in {folder}")
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
