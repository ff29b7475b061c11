"""Recording and alert rules for Prometheus, rendered from one file of objectives. Pure but for `command.py`."""
