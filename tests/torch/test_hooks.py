"""Each hook on a real framework, in small scripts that have no line of ours unless they say so."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.test_recorder import spools
from tests.ports import free_port

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
HEAD = """
import os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.ones(4)
def step(model, *optimizers):
    model(torch.ones(2, 4)).sum().backward()
    for one in optimizers: one.step()
def main():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
"""
# A thread of gloo that still holds a tensor when the interpreter ends aborts the process (pytorch issue 190489), with
# hooks or without: so nothing of a group may be left by then.
TAIL = """
if __name__ == "__main__":
    main()
    if torch.distributed.is_initialized(): torch.distributed.destroy_process_group()
"""


def run(folder: Path, code: str, *before: str, **environ: str) -> list[list[dict[str, Any]]]:
    """The records of each process that was recorded, in the order of ranks, of a script that must end well."""
    script = folder / "train.py"
    script.write_text(HEAD + textwrap.indent(textwrap.dedent(code), "    ") + TAIL)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
    done = subprocess.run(
        [sys.executable, "-m", "ett_collector.run", "--job", "j", "--", sys.executable, *before, str(script)],
        env=kept | {
            "PYTHONPATH": str(ROOT / "collectors"), "ETT_SPOOL_DIR": str(folder / "spool"), "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), **environ,
        },
        cwd=folder, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    found = [one for one in spools(folder / "spool") if one[0]["kind"] == "trainer"]
    assert [] == [
        record for one in found for record in one if record["t"] == "notice" and record["hook"] != "steps"
    ]
    return sorted(found, key=lambda one: int(one[0]["rank"]))


def steps(found: list[dict[str, Any]]) -> list[int]:
    """The numbers of steps that are complete."""
    return [one["n"] for one in found if one["t"] == "step"]


def phases(found: list[dict[str, Any]]) -> list[str]:
    """The names of phases of the process itself in the order of their ends."""
    return [one["phase"] for one in found if one["t"] == "phase" and one["phase"] != "launcher_start"]


def checkpoints(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """(kind, step, mode) of each."""
    return [(one["kind"], one["step"], one.get("mode")) for one in found if one["t"] == "checkpoint"]


def test_leading_optimizer_counts(tmp_path: Path) -> None:
    """Two that take turns, gradients that are added up, a step that a GradScaler leaves out."""
    (found,) = run(tmp_path, """
        one, two = (torch.optim.AdamW(model.parameters()) for _ in range(2))
        step(model, one, two); step(model, two, one, two)
        for _ in range(3): step(model)
        step(model, one, two)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(model(torch.full((2, 4), float("inf"))).sum()).backward()
        scaler.step(one); scaler.update()
    """)  # fmt: skip

    assert [1, 2, 3] == steps(found)
    assert ["process_import", "model_build"] == phases(found)[:2]


def test_another_optimizer_takes_the_lead(tmp_path: Path) -> None:
    """The first one is gone, or steps no more: the count goes on."""
    (found,) = run(tmp_path, """
        one, two, three = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(3))
        step(model, one)
        del one
        step(model, two)
        for _ in range(101): step(model, three)
    """)  # fmt: skip

    assert [1, 2, 3, 4] == steps(found)


def test_the_trainer_counts_itself(tmp_path: Path) -> None:
    """With `ett.step` no step is told twice, and its phases are not either."""
    (found,) = run(tmp_path, """
        import ett_collector as ett
        ett.start(team="ads")
        optimizer = torch.optim.AdamW(model.parameters())
        for n in range(1, 4):
            with ett.data_wait(): next(iter(DataLoader(Rows())))
            step(model, optimizer)
            ett.step(n)
            with ett.phase("save"): torch.save(model.state_dict(), "last.pt")
        ett.end()
    """)  # fmt: skip

    assert [1, 2, 3] == steps(found)
    assert 3 == phases(found).count("save")
    assert "checkpoint_save_block" not in phases(found)
    assert {"team": "ads"} == found[0]["facts"]
    assert 1 == [one["t"] for one in found].count("end")


@pytest.mark.parametrize(
    ("save", "load", "expected"),
    [
        ("{'model': model.state_dict(), 'optimizer': optimizer.state_dict()}", "adam", [4, 5]),
        (
            "{'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'global_step': 3}",
            "sgd",
            [4, 5],
        ),
        ("{'model': model.state_dict(), 'optimizer': optimizer.state_dict()}", "sgd", []),
        ("model.state_dict()", "weights", [1, 2]),
    ],
)
def test_steps_go_on_from_what_was_loaded(tmp_path: Path, save: str, load: str, expected: list[int]) -> None:
    """By the optimizer's own count, else by an entry; unknown without either; weights alone are a new beginning."""
    kind = "AdamW(model.parameters())" if load == "adam" else "SGD(model.parameters(), lr=0.1, momentum=0.9)"
    code = f"""
        optimizer = torch.optim.{kind}
        if os.path.exists("last.pt"):
            saved = torch.load("last.pt")
            model.load_state_dict(saved.get("model", saved))
            if "optimizer" in saved: optimizer.load_state_dict(saved["optimizer"])
        for _ in range(2): step(model, optimizer)
        if not os.path.exists("last.pt"):
            step(model, optimizer)
            torch.save({save}, "last.pt")
    """
    (first,) = run(tmp_path, code)
    spool = tmp_path / "spool"
    for file in spool.iterdir():
        file.unlink()
    (second,) = run(tmp_path, code)

    assert ([1, 2, 3], [("save", 3, "sync")]) == (steps(first), checkpoints(first))
    assert "checkpoint_save_block" in phases(first)
    assert expected == steps(second)
    assert "checkpoint_load" in phases(second)
    assert ([("load", 3, None)] if expected[:1] == [4] else []) == checkpoints(second)
    assert (not expected) == any(one.get("hook") == "steps" for one in second)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_loader_are_no_ranks(tmp_path: Path, start: str) -> None:
    """The loop's waits are told, its first one as the warm-up; the workers have no spool."""
    (found,) = run(tmp_path, f"""
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Rows(), batch_size=2, num_workers=2, multiprocessing_context="{start}"):
            step(model, optimizer)
        with torch.no_grad():
            for batch in DataLoader(Rows(), batch_size=2): model(batch)
        torch.save(torch.ones(3), "no-checkpoint.pt")
    """)  # fmt: skip

    assert [1, 2, 3, 4] == steps(found)
    assert {"data_warmup", "evaluation"} <= set(phases(found))
    assert 1 == [one["t"] for one in found].count("begin")
    waits = [one["t"] for one in found].count("waited") + phases(found).count("data_stall")
    assert 3 == waits  # two for batches, one for the end; before that was the warm-up, and the step held back
    assert "checkpoint_save_block" not in phases(found)


def test_ranks_of_spawn_are_recorded_and_their_parent_is_not(tmp_path: Path) -> None:
    """`torch.multiprocessing.spawn`: each says its rank when it joins the group."""
    (tmp_path / "ranks.py").write_text(
        "import torch, torch.distributed as dist\n"
        "def work(rank):\n"
        "    dist.init_process_group('gloo', rank=rank, world_size=2)\n"
        "    dist.barrier()\n"
        "    dist.destroy_process_group()\n"
    )
    both = run(tmp_path, "import ranks; torch.multiprocessing.spawn(ranks.work, nprocs=2)")

    assert [0, 1] == [one[0]["rank"] for one in both]
    assert [2, 2] == [one[0]["world_size"] for one in both]
    assert ["process_import", "process_group_init", "drain_and_teardown"] == phases(both[0])


def test_a_group_that_connects_late(tmp_path: Path) -> None:
    """The first collective of such a group, by whatever way it comes, and no later one."""
    (found,) = run(tmp_path, """
        import torch.distributed as dist
        from ett_collector.hooks import process_group
        process_group.LAZY_BACKENDS.add("gloo")  # as if it were NCCL
        dist.init_process_group("gloo", rank=0, world_size=1)
        parallel = nn.parallel.DistributedDataParallel(model)
        dist.all_reduce(torch.ones(1)); dist.barrier()
        other = dist.new_group([0])
        dist.all_reduce(torch.ones(1), group=other)
    """)  # fmt: skip
    lazy = [one["attrs"] for one in found if one["t"] == "phase" and "lazy" in one.get("attrs", {})]

    assert 4 == phases(found).count("process_group_init")
    assert ["_verify_param_shape_across_processes", "all_reduce"] == [one["collective"] for one in lazy]


def test_compilations(tmp_path: Path) -> None:
    """Cold, again for another shape, and from the cache in the next process; the same work has the same key."""
    code = """
        import torch.distributed as dist
        dist.init_process_group("gloo", rank=0, world_size=1)
        optimizer = torch.optim.AdamW(model.parameters())
        compiled, update = torch.compile(model), torch.compile(optimizer.step)
        @torch.compile(fullgraph=True)
        def reduced(x):
            dist.all_reduce(x)
            return x + 1
        assert reduced(torch.ones(2)).tolist() == [2, 2]
        for rows in (2, 2, 3):
            compiled(torch.ones(rows, 4)).sum().backward()
            update()
        torch._dynamo.reset()
        compiled(torch.ones(2, 4))
    """
    (first,) = run(tmp_path, code)
    for file in (tmp_path / "spool").iterdir():
        file.unlink()
    (second,) = run(tmp_path, code)
    cold = {
        one.get("work_key") for one in first if one.get("phase") == "compile_cold" and one["t"] == "phase"
    }
    found = {
        one.get("work_key")
        for one in second
        if one.get("phase") == "compile_cache_restore" and one["t"] == "phase"
    }

    assert [1, 2, 3] == steps(first) == steps(second)
    assert {"compile_cold", "recompile_in_loop"} <= set(phases(first))
    assert found
    assert None not in found
    assert found <= cold


def test_checkpoints_of_dcp(tmp_path: Path) -> None:
    """What an asynchronous save does beside the steps is told apart from what it blocks."""
    (found,) = run(tmp_path, """
        import torch.distributed as dist, torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict
        dist.init_process_group("gloo", rank=0, world_size=1)
        optimizer = torch.optim.AdamW(model.parameters())
        get_state_dict(model, optimizer)  # makes a step of its own
        step(model, optimizer)
        state = {"model": model.state_dict()}
        dcp.save(state, checkpoint_id="one")
        saving = dcp.async_save(state, checkpoint_id="two")
        step(model, optimizer)
        saving.result()
        dcp.load(state, checkpoint_id="two")
        try: dcp.load(state, checkpoint_id="three")
        except BaseException: pass
    """)  # fmt: skip
    last = [one for one in found if one.get("phase") == "checkpoint_load"][-1]

    assert [1, 2] == steps(found)
    assert [("save", 1, "sync"), ("save", 1, "async")] == checkpoints(found)
    assert 2 <= phases(found).count("checkpoint_save_block")
    assert 1 == phases(found).count("checkpoint_save_async")
    assert last["attrs"]["raised"]
