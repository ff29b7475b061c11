"""Hooks on imports, without a framework: who is recorded, who is left alone, and what a broken hook does."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.collectors.conftest import COLLECTORS, until
from tests.collectors.test_recorder import spools

if TYPE_CHECKING:
    from tests.collectors.conftest import Bench

BOOTSTRAP = str(Path(COLLECTORS) / "ett_collector" / "hooks" / "bootstrap")
PTH = (Path(BOOTSTRAP) / "ett-auto.pth").read_text()
RANK = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "0", "RANK": "0", "ETT_JOB": "j", "ETT_ATTEMPT": "a"}


def python(bench: Bench, code: str, *folders: Path, **environ: str) -> str:
    """What a Python below `ett-run` prints; it must end well and complain of nothing."""
    path = os.pathsep.join([BOOTSTRAP, *map(str, folders)])
    process = bench.spawn(sys.executable, "-c", code, **{"ETT_AUTO": "1", "PYTHONPATH": path, **environ})
    out, errors = process.communicate(timeout=30)
    assert (0, "") == (process.returncode, errors)
    return out


def package(folder: Path, **modules: str) -> Path:
    """A package on disk: `a_b="code"` is module `a.b`; folders on the way are packages."""
    for name, code in modules.items():
        file = folder.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        for parent in file.parents[: len(name.split("__")) - 1]:
            (parent / "__init__.py").touch()
        file.write_text(code)
    return folder


def records(bench: Bench) -> list[list[dict[str, Any]]]:
    """The records of each spool of a trainer."""
    return [one for one in spools(bench.spool) if one[0]["kind"] == "trainer"]


def phases(found: list[dict[str, Any]]) -> list[str]:
    """The names of phases that have ended, and of those that are open."""
    return [one["phase"] for one in found if one["t"] == "phase"]


def test_off_there_is_nothing_to_pay(bench: Bench) -> None:
    """Without ETT_AUTO the line of the .pth file loads nothing of ours."""
    code = f"import sys\nexec({PTH!r})\nprint([name for name in sys.modules if name.startswith('ett')])"
    process = bench.spawn(sys.executable, "-c", code)

    assert ("[]\n", "") == process.communicate(timeout=30)


def test_python_without_a_framework_records_nothing(bench: Bench) -> None:
    """A tool below `ett-run` has a finder that waits, and neither a recorder nor a spool."""
    code = "import sys\nprint(type(sys.meta_path[0]).__name__, 'ett_collector.recorder' in sys.modules)"

    assert "Finder False\n" == python(bench, code)
    assert not bench.spool.exists()


def test_the_line_of_the_pth_file_starts_the_hooks(bench: Bench) -> None:
    """ETT_AUTO=1 is enough where the package is installed."""
    code = f"import sys\nexec({PTH!r})\nprint(type(sys.meta_path[0]).__name__)"

    assert "Finder\n" == python(bench, code, PYTHONPATH=COLLECTORS)


def test_a_sitecustomize_that_was_there_is_run(bench: Bench, tmp_path: Path) -> None:
    """Ours goes first, then the other one, under its own name and on a path without ours."""
    theirs = package(tmp_path / "theirs", sitecustomize="import sys\nprint(sys.path)\nMINE = 1\n")
    code = "import sitecustomize, sys\nprint(sitecustomize.MINE, type(sys.meta_path[0]).__name__)"
    path, *rest = python(bench, code, theirs).splitlines()

    assert BOOTSTRAP not in path
    assert ["1 Finder"] == rest


def test_a_module_keeps_its_loader(bench: Bench, tmp_path: Path) -> None:
    """What is looked at while a hook waits for it: spec, loader and source are as without us."""
    code = (
        "import torch.serialization as m, inspect\n"
        "print(type(m.__loader__).__name__, 'exec_module' in vars(m.__loader__), m.__spec__.loader is m.__loader__)\n"
        "print(inspect.getsource(m.other), m.save.__name__, m.save(1, 2))\n"
    )
    source = "def other(): pass\ndef save(*a): return a\ndef load(*a): return a\n"
    folder = package(tmp_path / "fake", torch__serialization=source)

    expected = "SourceFileLoader False True\ndef other(): pass\n save (1, 2)\n"
    assert expected == python(bench, code, folder)


def test_an_import_that_fails_fails_as_it_would(bench: Bench, tmp_path: Path) -> None:
    """The error is the module's own, each time it is tried."""
    folder = package(tmp_path / "fake", torch__serialization="raise RuntimeError('theirs')")
    code = (
        "for _ in range(2):\n"
        "    try: import torch.serialization\n"
        "    except RuntimeError as error: print(error)\n"
    )

    assert "theirs\ntheirs\n" == python(bench, code, folder)


def test_a_hook_that_fails_is_told_to_the_agent_alone(bench: Bench, tmp_path: Path) -> None:
    """A framework of another version, without what the hook wants: the trainer sees nothing of it."""
    folder = package(
        tmp_path / "fake", torch__optim__optimizer="class Optimizer: pass", torch__serialization=""
    )
    agent = bench.agent()
    code = "import torch.optim.optimizer as o, torch.serialization\nprint(o.Optimizer())"

    assert "Optimizer object" in python(bench, code, folder, **RANK)
    until(lambda: bench.receiver.of("attempt_end"))
    errors = bench.stop(agent)
    where = "j a rank 0: hook"
    assert 1 == errors.count(
        f"{where} optimizer: torch.optim.optimizer has no register_optimizer_step_pre_hook"
    )
    assert 1 == errors.count(f"{where} serialization: torch.serialization has no save")


def test_hooks_are_left_out_by_name(bench: Bench, tmp_path: Path) -> None:
    """The module is imported as if nobody waited for it."""
    folder = package(tmp_path / "fake", torch__serialization="def save(): pass\ndef load(): pass")
    code = "import torch.serialization as m\nprint(hasattr(m.save, '__wrapped__'))"

    assert "True\n" == python(bench, code, folder)
    assert "False\n" == python(bench, code, folder, ETT_AUTO_WITHOUT="compile,serialization")


@pytest.mark.parametrize(("options", "hooked"), [((), True), (("--no-auto",), False)])
def test_ett_run_turns_hooks_on(bench: Bench, options: tuple[str, ...], hooked: bool) -> None:  # noqa: FBT001
    """Unless it is told not to."""
    code = "import sys; print(type(sys.meta_path[0]).__name__ == 'Finder')"
    run = bench.spawn(sys.executable, "-m", "ett_collector.run", *options, "--", sys.executable, "-c", code)

    assert (f"{hooked}\n", "") == run.communicate(timeout=30)


def test_a_hook_that_fails_at_a_call_leaves_the_call_alone(bench: Bench) -> None:
    """It is made once, its result and its error are its own; the failure is told once."""
    code = (
        "from ett_collector.hooks import around, session\n"
        "class module:\n"
        "    def good(x): print('called'); return x\n"
        "    def bad(): raise KeyError('theirs')\n"
        "def broken(*_): raise ValueError('ours')\n"
        "live = session.act()\n"
        "around.put(module, 'good', 'first', lambda _: around.opened(live, 'evaluation'), broken)\n"
        "around.put(module, 'bad', 'second', lambda _: around.opened(live, 'evaluation'))\n"
        "print(module.good(1)); around.put(module, 'good', 'third', broken); print(module.good(2))\n"
        "try: module.bad()\n"
        "except KeyError as error: print(error)\n"
    )

    assert "called\n1\ncalled\n2\n'theirs'\n" == python(bench, code, **RANK)
    (found,) = records(bench)
    assert ["first", "third"] == [one["hook"] for one in found if one["t"] == "notice"]
    assert 3 == phases(found).count("evaluation")


def test_a_worker_of_torchrun_is_recorded_from_its_start(bench: Bench) -> None:
    """Imports that fail are on record, with the traceback and the phase that they failed in."""
    path = os.pathsep.join([BOOTSTRAP, COLLECTORS])
    process = bench.spawn(
        sys.executable, "-c", "import no_such_module", ETT_AUTO="1", PYTHONPATH=path, **RANK
    )
    process.communicate(timeout=30)
    (found,) = records(bench)

    assert ("j", "a", 0) == (found[0]["job"], found[0]["attempt"], found[0]["rank"])
    assert "No module named 'no_such_module'" in found[-2]["error"]
    assert "process_import" in phases(found)


@pytest.mark.parametrize(
    ("code", "status"), [("pass", 0), ("import sys; sys.exit(3)", 3), ("import sys; sys.exit('no')", 1)]
)
def test_the_script_says_how_it_ended(bench: Bench, code: str, status: int) -> None:
    """A script without `ett.end()` that ran to its end is on record with its exit status, and then tears down."""
    process = bench.spawn(
        sys.executable, "-c", code, ETT_AUTO="1", PYTHONPATH=os.pathsep.join([BOOTSTRAP, COLLECTORS]), **RANK
    )
    process.communicate(timeout=30)
    (found,) = records(bench)
    exiting, opened = found[-2:]

    assert status == process.returncode == exiting["exit_code"]
    assert ("exit", "open", "drain_and_teardown") == (exiting["t"], opened["t"], opened["phase"])


@pytest.mark.parametrize(
    "environ",
    [
        {"ETT_JOB": ""},  # its name would be a guess
        {"TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": ""} | {"ETT_AUTO_PID": "1"},  # started by a rank
        {"ETT_DISABLE": "1"},
        {"ETT_AUTO": "0"},
    ],
)
def test_others_are_not_recorded_at_their_start(bench: Bench, environ: dict[str, str]) -> None:
    """Who has no name yet, is started by a rank, or was told not to."""
    python(bench, "pass", **(RANK | environ))

    assert [] == records(bench)


def test_what_a_rank_starts_stays_out(bench: Bench) -> None:
    """Same environment, another process: tools, spawned and forked workers of a rank are no ranks."""
    code = (
        "import multiprocessing, os, subprocess, sys\n"
        "act = 'from ett_collector.hooks import session; print(session.act() is None, flush=True)'\n"
        "def work(): exec(act)\n"
        "if __name__ == '__main__':\n"
        "    exec(act)\n"
        "    subprocess.run([sys.executable, '-c', act], check=True)\n"
        "    for kind in ('fork', 'spawn'):\n"
        "        child = multiprocessing.get_context(kind).Process(target=work)\n"
        "        child.start(); child.join()\n"
    )
    script = bench.folder / "train.py"
    script.write_text(code)
    path = os.pathsep.join([BOOTSTRAP, COLLECTORS])
    process = bench.spawn(sys.executable, str(script), ETT_AUTO="1", PYTHONPATH=path, **RANK)
    out, errors = process.communicate(timeout=60)

    assert ("False\nTrue\nTrue\nTrue\n", "") == (out, errors)
    assert 1 == len(records(bench))


def test_what_the_trainer_says_of_itself_is_added(bench: Bench) -> None:
    """Its `ett.start` comes after ours, and tells of the same rank more than the environment does."""
    agent = bench.agent()
    python(bench, "import ett_collector as ett\nett.start(team='ads', gpus=8, labels={'a': 'b'})", **RANK)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    assert 1 == len(bench.receiver.of("attempt_end"))
    jobs = [one.body for one in bench.receiver.of("job")]
    assert {"team": "ads", "labels": {"a": "b"}} in jobs
    assert 8 in [one.body.get("gpus") for one in bench.receiver.of("attempt_start")]


def test_a_phase_of_the_trainers_own_goes_first(bench: Bench) -> None:
    """Within it, and where the same is open already, no hook tells of anything."""
    code = (
        "import ett_collector as ett\n"
        "from ett_collector.hooks import session\n"
        "live = session.act()\n"
        "with ett.phase('save'): print(live.begin('checkpoint_save_block'))\n"
        "with ett.phase('upload', overlapped=True): outer = live.begin('checkpoint_save_block')\n"
        "print(live.begin('checkpoint_save_block'))\n"
        "inner = live.begin('evaluation')\n"
        "live.finish(inner); live.finish(outer, known=('compile_cold', 'key'), attrs={'a': 1})\n"
    )

    assert "None\nNone\n" == python(bench, code, **RANK)
    (found,) = records(bench)
    assert ["save", "upload", "evaluation", "compile_cold"] == phases(found)[2:]
    (last,) = [one for one in found if one["t"] == "phase" and one["phase"] == "compile_cold"]
    assert ("key", {"a": 1}) == (last["work_key"], last["attrs"])


STEPS = (
    "import ett_collector as ett\n"
    "from ett_collector.hooks import session, steps\n"
    "class Optimizer: state = {}\n"
    "done = lambda: steps.complete(session.live(), Optimizer)\n"
    "session.act()\n"
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("done(); done(); done()", [1, 2, 3]),
        ("done()", [1]),  # what was held back is written at the end
        ("done(); ett.step(1); done(); ett.step(2)", [1, 2]),  # the trainer counts
        ("done(); ett.step(500); done(); ett.step(501)", [500, 501]),  # also by other numbers
        ("ett.step_begin(7); done(); ett.step(7)", [7]),
        ("ett.checkpoint_loaded(40); done(); done()", [41, 42]),
        ("Optimizer.state = {0: {'step': 41}}; done(); done()", [41, 42]),
        (
            "from ett_collector.hooks import resume as r\nr.loaded_optimizer({'state': {0: {'m': 1}}}); done()",
            [],
        ),
    ],
)
def test_steps_are_counted_once(bench: Bench, code: str, expected: list[int]) -> None:
    """By the hook, or by the trainer as soon as it does; from what was loaded, and not where nobody knows."""
    python(bench, STEPS + code, **RANK)
    (found,) = records(bench)

    assert expected == [one["n"] for one in found if one["t"] == "step"]
    assert (expected == []) == ("steps" in [one.get("hook") for one in found])
