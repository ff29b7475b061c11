"""The one recorder of this process: made by `start`, forgotten in a forked child."""

from __future__ import annotations

import os
import sys

from ett_collector.null import NullRecorder
from ett_collector.spans import DataWait, Phase

TYPE_CHECKING = False  # what is needed to record is imported by `start`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ett_collector.recorder import Recorder
    from ett_collector.spool import Spool

LONG_BEFORE_NS = (
    600_000_000_000  # an unlaunched process that is older (a notebook) did not start for this job
)
PROCESS_IMPORT = "process_import"
LAUNCHER_START = "launcher_start"
WHO = ("job", "attempt", "rank")
NULL = NullRecorder()


class _Current:
    """The holder of the recorder, so that no module has to rebind a global of another."""

    recorder: Recorder | NullRecorder = NULL
    live: Recorder | None = None  # the same, where it records
    key: tuple[str, str, int] | None = None
    forks_watched = False
    make: Callable[..., Recorder] | None = None  # where hooks record as well (`ett_collector.hooks`)
    imported_at: int | None = (
        None  # wall ns: when the imports of this process were over, as far as hooks saw it
    )


def current() -> Recorder | NullRecorder:
    """The recorder of this process, a `NullRecorder` before `start`."""
    return _Current.recorder


def start(  # noqa: PLR0913 - every field has a default
    job: str | None = None,
    *,
    attempt: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    gpus: int | None = None,
    gpus_on_node: int | None = None,
    allocated: int | None = None,
    released_between: bool | None = None,
    name: str | None = None,
    cluster: str | None = None,
    team: str | None = None,
    model: str | None = None,
    framework: str | None = None,
    labels: Mapping[str, str] | None = None,
    spool_dir: str | os.PathLike[str] | None = None,
) -> Recorder | NullRecorder:
    """Begin to record this process; everything that is left out comes from the environment.

    `gpus` counts the whole attempt, `gpus_on_node` this node; `allocated` (wall ns) is when the hardware was
    given; `released_between` whether it had been given back before this attempt. A second call with the same
    job, attempt and rank returns the same recorder; with another one it ends the first (outcome unknown).
    Never raises: with `ETT_DISABLE=1`, in a data loader's worker or on any error it returns a `NullRecorder`.
    """
    try:
        if os.environ.get("ETT_DISABLE", "0") not in ("", "0") or (rank is None and _is_worker()):
            return NULL
        who = {"job": job, "attempt": attempt}
        numbers = {
            "rank": rank,
            "world_size": world_size,
            "gpus": gpus,
            "gpus_on_node": gpus_on_node,
            "allocated": allocated,
        }
        said: dict[str, Any] = {
            **{name: str(value) for name, value in who.items() if value},
            **{name: int(value) for name, value in numbers.items() if value is not None},
            **({} if released_between is None else {"released_between": bool(released_between)}),
        }
        facts = {"name": name, "cluster": cluster, "team": team, "model": model, "framework": framework}
        told = {key: str(value) for key, value in facts.items() if value}
        marked = {str(key): str(value) for key, value in (labels or {}).items()}
        return _start(said, {"facts": told, "labels": marked or None}, spool_dir)
    except Exception:  # noqa: BLE001 - a trainer never fails for its recorder
        return _Current.recorder


def phase(
    name: str,
    *,
    overlapped: bool = False,
    work_key: str | None = None,
    step: int | None = None,
    attrs: dict[str, Any] | None = None,
) -> Phase:
    """A span of this process: `with ett.phase("checkpoint_load"):` or `@ett.phase("evaluation")`.

    `name` is a phase of the taxonomy or a name of one's own; `overlapped` says that training goes on beside
    it; `work_key` is a fingerprint of work that another attempt might not have to do again.
    """
    return Phase(_live, (name, overlapped, work_key), step, attrs)


def data_wait() -> DataWait:
    """A wait of the step for its input: `with ett.data_wait(): batch = next(batches)`."""
    return DataWait(_live)


def _live() -> Recorder | None:
    return _Current.live


def _start(said: dict[str, Any], facts: dict[str, Any], spool_dir: str | os.PathLike[str] | None) -> Recorder:
    from time import monotonic_ns  # noqa: PLC0415 - all of this costs nothing where nothing is recorded

    from ett_collector import identity as identities  # noqa: PLC0415
    from ett_collector import process  # noqa: PLC0415
    from ett_collector.clock import Clock  # noqa: PLC0415
    from ett_collector.recorder import Recorder  # noqa: PLC0415
    from ett_collector.spool import HEAD_VERSION  # noqa: PLC0415

    stat = process.read_stat(os.getpid())
    ticks = stat.ticks if stat is not None else 0
    boot = process.boot_id()
    this = f"{boot[:8]}-{os.getpid()}-{ticks}"
    found = identities.identify(os.environ, script=_script(), process=this, ray=_ray())
    identity = found._replace(**said)
    key = (identity.job, identity.attempt, identity.rank)
    clock = Clock()
    now = monotonic_ns() + clock.anchor
    began = process.started_at(stat, now) if stat is not None else None
    if began is None or began > now or (not identity.by_launcher and now - began > LONG_BEFORE_NS):
        began = now
    launched_at = _launched(identity.launched_at, boot, clock.anchor)
    identity = identity._replace(launched_at=launched_at)
    if launched_at is not None and began < launched_at <= now:
        began = launched_at  # the kernel counts starts in ticks of 10 ms: no process is older than its parent
    if _Current.live is not None:
        if _Current.key == key:
            _tell_more(said, facts)
            return _Current.live
        _Current.live.end("unknown")  # a restart inside the process: the hardware was kept
        identity = identity._replace(**{"released_between": False, **said})
        began = now = monotonic_ns() + clock.anchor
    head = {
        "t": "head",
        "v": HEAD_VERSION,
        "kind": "trainer",
        "id": os.urandom(16).hex(),
        "at": now,
        "anchor": clock.anchor,
        "pid": os.getpid(),
        "ticks": ticks,
        "boot": boot,
        "pidns": process.pid_namespace(),
        "began": began,
        **identity._asdict(),
        "facts": identities.facts(os.environ) | facts["facts"],
        "labels": facts["labels"],
        "error_file": os.environ.get("TORCHELASTIC_ERROR_FILE"),
    }
    recorder = (_Current.make or Recorder)(_spool(head, spool_dir), head["id"][:8], clock)
    _Current.recorder, _Current.live, _Current.key = recorder, recorder, key
    if launched_at is not None and launched_at < began:
        recorder.span(LAUNCHER_START, launched_at, began, anchor=head["anchor"])
    imported = now if _Current.imported_at is None else _Current.imported_at + head["anchor"]
    if began < imported:
        recorder.span(PROCESS_IMPORT, began, imported, anchor=head["anchor"])
    return recorder


def _launched(told: int | None, boot: str, anchor: int) -> int | None:
    """When the `ett-run` above began (wall ns); on this machine by monotonic time: clocks may be set meanwhile."""
    where, _, mono = os.environ.get("ETT_ATTEMPT_LAUNCHED_MONO", "").rpartition(":")
    return int(mono) + anchor if told is not None and boot and where == boot and mono.isdigit() else told


def _tell_more(said: dict[str, Any], facts: dict[str, Any]) -> None:
    """A second `start` of the same rank, after one that had only the environment to go by."""
    more = {name: value for name, value in {**said, **facts}.items() if value and name not in WHO}
    if _Current.live is not None and more:
        _Current.live.tell(more)


def _spool(head: dict[str, Any], spool_dir: str | os.PathLike[str] | None) -> Spool:
    from ett_collector.identity import spool_folder  # noqa: PLC0415
    from ett_collector.spool import LIMIT_BYTES, Spool  # noqa: PLC0415

    folder, private = spool_folder(os.environ)
    if spool_dir is not None:
        folder, private = os.path.abspath(os.fspath(spool_dir)), False
    if not _Current.forks_watched and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)
        _Current.forks_watched = True
    said = os.environ.get("ETT_SPOOL_BYTES", "")
    limit = int(said) if said.isdigit() else LIMIT_BYTES
    name = f"{head['kind']}-{head['pid']}-{head['id']}"
    return Spool(folder, name, head, limit_bytes=limit, private=private)


def _forget() -> None:
    """In a forked child: its parent's recorder is none of its business; it may `start` one of its own."""
    recorder = _Current.live
    _Current.recorder, _Current.live, _Current.key = NULL, None, None
    if recorder is not None:
        recorder.abandon()


def _is_worker() -> bool:
    """Whether this is a helper process of a trainer (a data loader's worker), not a rank."""
    module = sys.modules.get("multiprocessing.process")
    if module is None:
        return False
    this = module.current_process()
    # `_inheriting`: a spawned child that imports its parent's main module, before it is told what it is
    return bool(this.daemon or getattr(this, "_inheriting", False))


def _ray() -> str:
    """Session and job of Ray where this is one of its workers. `RAY_JOB_ID` may be that of no job at all."""
    ray = sys.modules.get("ray")
    if ray is None or "RAY_RAYLET_PID" not in os.environ:
        return ""
    try:
        context = ray.get_runtime_context()
        return f"{context.get_session_name()}/{context.get_job_id()}"
    except Exception:  # noqa: BLE001 - an older Ray, or one that is not connected
        return ""


def _script() -> str:
    main = sys.modules.get("__main__")
    return os.path.basename(getattr(main, "__file__", None) or "python")
