"""fleet-ett: effective training time of a fleet. The version, and nothing that costs an import."""

from __future__ import annotations

__version__ = "0.1.0"
