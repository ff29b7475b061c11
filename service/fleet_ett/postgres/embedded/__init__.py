"""How the embedded server is kept: its folder, programs, user, and the process that watches over it.

Standard library only: the watcher is a process of its own and starts in milliseconds. Users of the
embedded server want `fleet_ett.postgres.server`.
"""
