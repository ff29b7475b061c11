"""Alembic's entry: runs the migrations on the connection that `fleet_ett.postgres.migrate` hands over.

The caller owns the transaction and the lock that keeps two migrations apart. There is no offline mode and no
alembic.ini: `fleet-ett migrate` is the way in.
"""

from __future__ import annotations

from alembic import context

from fleet_ett.postgres.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    compare_server_default=True,
)
context.run_migrations()
