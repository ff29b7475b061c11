"""Faults made on purpose, with real processes and signals: nothing acknowledged is lost, and all heals by itself."""
