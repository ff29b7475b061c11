"""The default causes of failures as literal rows: the data, no logic (sources: `causes.py`)."""

from __future__ import annotations

# Columns: the id; cause, symptom or outcome; the domain; the owner.
CAUSES: tuple[tuple[str, str, str, str], ...] = (
    ("gpu_uncorrectable_memory", "cause", "hardware", "hw_fleet"),
    ("gpu_memory_degrading", "symptom", "hardware", "hw_fleet"),
    ("gpu_off_bus", "symptom", "hardware", "hw_fleet"),
    ("nvlink_error", "cause", "hardware", "hw_fleet"),
    ("gpu_firmware_processor", "cause", "system_software", "os_driver"),
    ("gpu_generic_fault", "cause", "hardware", "hw_fleet"),
    ("gpu_thermal", "symptom", "hardware", "facility"),
    ("silent_data_corruption", "symptom", "hardware", "hw_fleet"),
    ("pcie_error", "cause", "hardware", "hw_fleet"),
    ("host_memory", "cause", "hardware", "hw_fleet"),
    ("host_cpu_board_psu", "cause", "hardware", "hw_fleet"),
    ("local_disk", "cause", "hardware", "hw_fleet"),
    ("node_unreachable", "symptom", "hardware", "hw_fleet"),
    ("lemon_node", "cause", "hardware", "hw_fleet"),
    ("nic_or_hca", "cause", "hardware", "network"),
    ("link_flap", "cause", "hardware", "network"),
    ("switch_or_cable", "cause", "hardware", "network"),
    ("frontend_network", "cause", "system_software", "network"),
    ("filesystem_mount", "cause", "system_software", "storage"),
    ("remote_storage_error", "cause", "system_software", "storage"),
    ("disk_space", "cause", "system_software", "storage"),
    ("checkpoint_corrupt", "cause", "system_software", "checkpoint"),
    ("gpu_driver_error", "cause", "system_software", "os_driver"),
    ("kernel_panic_reboot", "cause", "system_software", "os_driver"),
    ("system_service", "symptom", "system_software", "os_driver"),
    ("container_error", "cause", "system_software", "container_image"),
    ("rendezvous_failure", "symptom", "system_software", "launcher"),
    ("compile_failure", "cause", "system_software", "compiler"),
    ("comm_library_bug", "cause", "system_software", "comms"),
    ("data_service_error", "cause", "system_software", "data"),
    ("publish_failure", "cause", "system_software", "publish"),
    ("external_dependency", "cause", "system_software", "unowned"),
    ("nccl_timeout", "symptom", "unknown", "unowned"),
    ("job_hang", "symptom", "unknown", "unowned"),
    ("throughput_decline", "symptom", "unknown", "unowned"),
    ("cuda_error_generic", "symptom", "unknown", "unowned"),
    ("illegal_memory_access", "symptom", "unknown", "model_owner"),
    ("cuda_context_cleanup", "symptom", "unknown", "unowned"),
    ("user_code_exception", "cause", "user", "model_owner"),
    ("user_configuration", "cause", "user", "model_owner"),
    ("gpu_oom", "cause", "user", "model_owner"),
    ("host_oom", "symptom", "user", "model_owner"),
    ("nan_or_divergence", "symptom", "user", "model_owner"),
    ("bad_input_data", "cause", "user", "data"),
    ("planned_code_or_config_change", "outcome", "policy", "model_owner"),
    ("preemption", "outcome", "policy", "scheduler"),
    ("time_limit", "outcome", "policy", "scheduler"),
    ("host_maintenance", "cause", "facility", "facility"),
    ("power_or_cooling", "cause", "facility", "facility"),
    ("false_recovery", "cause", "system_software", "scheduler"),
    ("undiagnosed", "symptom", "unknown", "unowned"),
    ("resize", "outcome", "policy", "scheduler"),
)

# NVIDIA XID -> cause
_XID_CODES: dict[str, tuple[int, ...]] = {
    "gpu_uncorrectable_memory": (48, 64, 94, 95, 140, 171, 172),
    "gpu_memory_degrading": (63, 92, 156, 160),
    "gpu_off_bus": (79, 167),
    "nvlink_error": (74, 144, 145, 146, 147, 148, 149, 150, 155),
    "gpu_firmware_processor": (62, 119, 120, 122, 123, 143, 158, 169),
    "gpu_generic_fault": (46, 109, 110, 121),
    "gpu_thermal": (54,),
    "gpu_driver_error": (37, 38, 44, 66, 67, 78),
    "illegal_memory_access": (13, 31, 32, 43, 69, 80),
    "cuda_context_cleanup": (45,),
}
XID: dict[int, str] = {code: cause for cause, codes in _XID_CODES.items() for code in codes}

# scheduler state -> cause (Slurm terminal states; Kubernetes reasons)
STATES: dict[str, str] = {
    "NODE_FAIL": "node_unreachable",
    "BOOT_FAIL": "node_unreachable",
    "OUT_OF_MEMORY": "host_oom",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "PREEMPTED": "preemption",
    "REQUEUED": "preemption",
    "SUSPENDED": "preemption",
    "CANCELLED": "planned_code_or_config_change",
    "NodeLost": "node_unreachable",
    "DeletionByTaintManager": "node_unreachable",
    "DeletionByPodGC": "node_unreachable",
    "Evicted": "disk_space",
    "ErrImagePull": "container_error",
    "ImagePullBackOff": "container_error",
    "CreateContainerError": "container_error",
    "RunContainerError": "container_error",
    "OOMKilled": "host_oom",
    "PreemptionByScheduler": "preemption",
    "EvictionByEvictionAPI": "preemption",
    "DeadlineExceeded": "time_limit",
    "TerminationByKubelet": "host_maintenance",
}

# XIDs that predict or inform, and end nothing by themselves
PREDICTORS: frozenset[int] = frozenset({63, 92, 154, 156, 160})

# kind of a `fault` event -> cause (an exception's and an oom's text may say more)
FAULTS: dict[str, str] = {
    "ecc": "gpu_uncorrectable_memory",
    "oom": "host_oom",
    "nccl": "nccl_timeout",
    "link": "link_flap",
    "thermal": "gpu_thermal",
    "filesystem": "filesystem_mount",
    "exception": "user_code_exception",
    "preemption": "preemption",
    "maintenance": "host_maintenance",
}

# what error text says -> cause; the first pattern that is found decides, so specific ones stand first
SIGNATURES: tuple[tuple[str, str], ...] = (
    (r"cuda out of memory|OutOfMemoryError", "gpu_oom"),
    (
        r"oom[-_ ]?kill|killed process \d+|cannot allocate memory|MemoryError",
        "host_oom",
    ),
    (
        r"uncorrectable ecc|double[- ]bit ecc|uncorrectable memory error",
        "gpu_uncorrectable_memory",
    ),
    (r"fallen off the bus|gpu is lost", "gpu_off_bus"),
    (r"nvlink.*(error|fail)|nvswitch.*(?<!non-)fatal", "nvlink_error"),
    (r"pcie bus error: severity=uncorrect", "pcie_error"),
    (r"^edac .*\bUE\b|\[hardware error\].*uncorrected", "host_memory"),
    (r"segfault at .* in libnccl", "comm_library_bug"),
    (r"no space left on device|ENOSPC|disk quota exceeded", "disk_space"),
    (
        r"stale file handle|transport endpoint is not connected|mount.*(fail|missing)",
        "filesystem_mount",
    ),
    (r"(hdfs|s3|gcs|botocore).*(error|exception|timed? ?out)", "remote_storage_error"),
    (
        r"checkpoint.*(corrupt|incompatible|size mismatch)|unexpected key\(s\) in state_dict",
        "checkpoint_corrupt",
    ),
    (r"dataloader worker.*(killed|exited)", "data_service_error"),
    (
        r"RendezvousTimeoutError|RendezvousConnectionError|rendezvous.*timed? ?out",
        "rendezvous_failure",
    ),
    (
        r"watchdog.*timeout|collective operation timeout|nccl.*(timed? ?out)",
        "nccl_timeout",
    ),
    (r"nccl.*internal error", "comm_library_bug"),
    (
        r"nccl.*(unhandled|remote|system) .*error|connection closed by remote peer",
        "nccl_timeout",
    ),
    (r"illegal memory access", "illegal_memory_access"),
    (
        r"(torch\._inductor|inductor|torch\._dynamo).*(error|exception)|recompile_limit",
        "compile_failure",
    ),
    (r"loss is nan|nan or inf|(nan|inf) (loss|gradient|detected)", "nan_or_divergence"),
    (r"cuda error|cublas|cudnn", "cuda_error_generic"),
    (r"preempt", "preemption"),
    (r"maintenance", "host_maintenance"),
    (r"connection (refused|reset)", "frontend_network"),
    (
        r"traceback \(most recent call last\)|\b\w+(Error|Exception)\b",
        "user_code_exception",
    ),
)
