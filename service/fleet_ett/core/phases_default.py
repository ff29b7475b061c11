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

PHASES: tuple[tuple[str, str, str, str, str, str | None, str], ...] = (
    ("queue_wait", "schedule", "scheduler", "external", "scheduling", None, "startup"),
    ("gang_assembly", "schedule", "scheduler", "lost", "scheduling", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "startup"),
    ("requeue_wait", "recover", "scheduler", "external", "scheduling", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "gap"),
    ("node_prolog", "start", "hw_fleet", "lost", "hardware_setup", "TPU_INITIALIZATION", "startup"),
    ("image_pull", "start", "container_image", "overlappable", "hardware_setup", "TPU_INITIALIZATION", "startup"),
    ("mounts_and_secrets", "start", "storage", "lost", "hardware_setup", "TPU_INITIALIZATION", "startup"),
    ("launcher_start", "start", "launcher", "lost", "launcher_init", "TPU_INITIALIZATION", "startup"),
    ("rendezvous", "start", "launcher", "lost", "launcher_init", "TPU_INITIALIZATION", "startup"),
    ("process_import", "start", "trainer", "overlappable", "launcher_init", "TRAINING_PREP", "startup"),
    ("device_init", "start", "os_driver", "lost", "trainer_init", "TPU_INITIALIZATION", "startup"),
    ("process_group_init", "start", "comms", "lost", "trainer_init", "TRAINING_PREP", "startup"),
    ("preproc_creation", "start", "data", "overlappable", "trainer_init", "TRAINING_PREP", "startup"),
    ("model_build", "start", "trainer", "overlappable", "trainer_init", "TRAINING_PREP", "startup"),
    ("sharding_plan", "start", "trainer", "lost", "trainer_init", "TRAINING_PREP", "startup"),
    ("plugin_init", "start", "trainer", "overlappable", "trainer_init", "TRAINING_PREP", "startup"),
    ("checkpoint_load", "start", "checkpoint", "lost", "trainer_init", "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME", "startup"),
    ("data_warmup", "start", "data", "overlappable", "trainer_init", "DATA_LOADING_SYNC", "startup"),
    ("compile_cold", "start", "compiler", "overlappable", "pt2_compile", "PROGRAM_STARTUP", "startup"),
    ("compile_cache_restore", "start", "compiler", "overlappable", "pt2_compile", "PROGRAM_STARTUP", "startup"),
    ("kernel_autotune", "start", "compiler", "overlappable", "pt2_compile", "PROGRAM_STARTUP", "startup"),
    ("first_step_excess", "start", "compiler", "lost", "pt2_compile", "PROGRAM_STARTUP", "startup"),
    ("step_new_data", "train", "model_owner", "productive", "effective_training", None, "productive"),
    ("step_replayed", "train", "checkpoint", "lost", "wasted_training", "WASTED_PROGRESS_FROM_DISRUPTION", "replay"),
    ("step_discarded", "train", "checkpoint", "lost", "wasted_training", "WASTED_PROGRESS_FROM_DISRUPTION", "custom"),
    ("step_aborted", "train", "checkpoint", "lost", "wasted_training", "OTHER", "aborted_step"),
    ("data_stall", "train", "data", "overlappable", "wasted_training", "DATA_LOADING_SYNC", "data_wait"),
    ("recompile_in_loop", "train", "compiler", "lost", "wasted_training", "PROGRAM_STARTUP", "compile"),
    ("checkpoint_save_block", "train", "checkpoint", "lost", "wasted_training", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "checkpoint"),
    ("checkpoint_save_async", "train", "checkpoint", "overlappable", "wasted_training", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "checkpoint"),
    ("evaluation", "train", "model_owner", "lost", "wasted_training", "CUSTOM_BADPUT_EVENTS", "evaluation"),
    ("straggler_excess", "train", "hw_fleet", "lost", "wasted_training", "OTHER", "custom"),
    ("hang", "train", "observability", "lost", "wasted_training", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "stall"),
    ("drain_and_teardown", "end", "launcher", "lost", "shutdown", "OTHER", "shutdown"),
    ("publish_on_accelerator", "end", "publish", "lost", "shutdown", "CUSTOM_BADPUT_EVENTS", "publish"),
    ("unaccounted", "any", "unowned", "lost", "wasted_training", "OTHER", "unknown"),
)
