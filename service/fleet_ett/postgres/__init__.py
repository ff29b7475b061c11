"""Postgres, the one adapter that holds SQL: tables, queries, migrations and the embedded server."""
