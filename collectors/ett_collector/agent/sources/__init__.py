"""Where the agent learns of its node: one file a source, a reader and a pure parser each (`registry.py`)."""
