"""The independent judge: random fleets whose ledger is known because they were built from it.

A plan is laid down forwards, second by second, with heading, phase and blamed rank; the events that
collectors would have sent fall out of it on the way. Nothing in here knows the core: what it knows of the
rules is written down once more (`known.py`), from accounting.md and taxonomy.yaml.
"""
