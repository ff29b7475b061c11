"""The agent of a node: spools and processes in, events to the service out."""
