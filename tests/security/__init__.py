"""Strangers: what they may not do, tried on the running service."""
