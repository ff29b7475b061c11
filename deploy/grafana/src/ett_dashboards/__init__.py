"""The dashboards of fleet-ett, built with grafana-foundation-sdk; `make dashboards` writes them as JSON."""
