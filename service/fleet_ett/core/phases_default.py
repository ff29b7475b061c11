"""The default taxonomy of phases and components as literal rows: the data, no logic.

A row of PHASES: id, stage, owner, class, meta_l2, goodput badput type, heading inside the loop.
The order is the order of start-up: an earlier row is further behind on the critical path. The
heading is what the phase books once the first step has begun; stage `start` books `startup`
wherever it stands, PT2 compilation after the first step window `compile` (see `places.py`).
"""

from __future__ import annotations

# id, name
COMPONENTS: tuple[tuple[str, str], ...] = (
    ("scheduler", "Cluster scheduler and quota"),
    ("hw_fleet", "Hardware fleet and node health"),
    ("network", "Fabric and NIC"),
    ("storage", "Remote storage and file systems"),
    ("facility", "Power"),
    ("os_driver", "Host OS"),
    ("container_image", "Image build and distribution"),
    ("launcher", "Launcher"),
    ("comms", "Collective communication library"),
    ("trainer", "Trainer framework and sharding"),
    ("compiler", "Compiler and kernel autotuning"),
    ("data", "Data ingestion and preprocessing"),
    ("checkpoint", "Checkpointing"),
    ("publish", "Model publishing and export"),
    ("model_owner", "Model code and configuration (user)"),
    ("observability", "Telemetry and diagnosis"),
    ("unowned", "Unattributed"),
)

# badput types of ml-goodput-measurement
_DEVICES = "TPU_INITIALIZATION"
_PREPARATION = "TRAINING_PREP"
_PROGRAM = "PROGRAM_STARTUP"
_DATA = "DATA_LOADING_SYNC"
_SAVE = "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"
_RESTORE = "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME"
_WASTED = "WASTED_PROGRESS_FROM_DISRUPTION"
_RECOVERY = "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"
_CUSTOM = "CUSTOM_BADPUT_EVENTS"
_OTHER = "OTHER"

# fmt: off
PHASES: tuple[tuple[str, str, str, str, str, str | None, str], ...] = (
    ("queue_wait", "schedule", "scheduler", "external", "scheduling", None, "startup"),
    ("gang_assembly", "schedule", "scheduler", "lost", "scheduling", _RECOVERY, "startup"),
    ("requeue_wait", "recover", "scheduler", "external", "scheduling", _RECOVERY, "gap"),
    ("node_prolog", "start", "hw_fleet", "lost", "hardware_setup", _DEVICES, "startup"),
    ("image_pull", "start", "container_image", "overlappable", "hardware_setup", _DEVICES, "startup"),
    ("mounts_and_secrets", "start", "storage", "lost", "hardware_setup", _DEVICES, "startup"),
    ("launcher_start", "start", "launcher", "lost", "launcher_init", _DEVICES, "startup"),
    ("rendezvous", "start", "launcher", "lost", "launcher_init", _DEVICES, "startup"),
    ("process_import", "start", "trainer", "overlappable", "launcher_init", _PREPARATION, "startup"),
    ("device_init", "start", "os_driver", "lost", "trainer_init", _DEVICES, "startup"),
    ("process_group_init", "start", "comms", "lost", "trainer_init", _PREPARATION, "startup"),
    ("preproc_creation", "start", "data", "overlappable", "trainer_init", _PREPARATION, "startup"),
    ("model_build", "start", "trainer", "overlappable", "trainer_init", _PREPARATION, "startup"),
    ("sharding_plan", "start", "trainer", "lost", "trainer_init", _PREPARATION, "startup"),
    ("plugin_init", "start", "trainer", "overlappable", "trainer_init", _PREPARATION, "startup"),
    ("checkpoint_load", "start", "checkpoint", "lost", "trainer_init", _RESTORE, "startup"),
    ("data_warmup", "start", "data", "overlappable", "trainer_init", _DATA, "startup"),
    ("compile_cold", "start", "compiler", "overlappable", "pt2_compile", _PROGRAM, "startup"),
    ("compile_cache_restore", "start", "compiler", "overlappable", "pt2_compile", _PROGRAM, "startup"),
    ("kernel_autotune", "start", "compiler", "overlappable", "pt2_compile", _PROGRAM, "startup"),
    ("first_step_excess", "start", "compiler", "lost", "pt2_compile", _PROGRAM, "startup"),
    ("step_new_data", "train", "model_owner", "productive", "effective_training", None, "productive"),
    ("step_replayed", "train", "checkpoint", "lost", "wasted_training", _WASTED, "replay"),
    ("step_discarded", "train", "checkpoint", "lost", "wasted_training", _WASTED, "custom"),
    ("step_aborted", "train", "checkpoint", "lost", "wasted_training", _OTHER, "aborted_step"),
    ("data_stall", "train", "data", "overlappable", "wasted_training", _DATA, "data_wait"),
    ("recompile_in_loop", "train", "compiler", "lost", "wasted_training", _PROGRAM, "compile"),
    ("checkpoint_save_block", "train", "checkpoint", "lost", "wasted_training", _SAVE, "checkpoint"),
    ("checkpoint_save_async", "train", "checkpoint", "overlappable", "wasted_training", _SAVE, "checkpoint"),
    ("evaluation", "train", "model_owner", "lost", "wasted_training", _CUSTOM, "evaluation"),
    ("straggler_excess", "train", "hw_fleet", "lost", "wasted_training", _OTHER, "custom"),
    ("hang", "train", "observability", "lost", "wasted_training", _RECOVERY, "stall"),
    ("drain_and_teardown", "end", "launcher", "lost", "shutdown", _OTHER, "shutdown"),
    ("publish_on_accelerator", "end", "publish", "lost", "shutdown", _CUSTOM, "publish"),
    ("unaccounted", "any", "unowned", "lost", "wasted_training", _OTHER, "unknown"),
)
# fmt: on
