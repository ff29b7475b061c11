"""Who may what, and what was done to it."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from fleet_ett.postgres.tables.metadata import metadata

# Who may what. Rows stay for ever: a service that ever had a token never opens again. Of a secret only its SHA-256
# is here; `old_hash` is good until `old_until_ns` after a rotation. `rate`: requests/s, 0 for no limit.
tokens = Table(
    "tokens",
    metadata,
    Column("token_id", Text, primary_key=True),
    *(Column(name, Text, nullable=False) for name in ("name", "scope")),
    *(Column(name, ARRAY(Text), nullable=False) for name in ("clusters", "nodes", "teams")),
    Column("rate", Integer, nullable=False),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("old_hash", LargeBinary),
    Column("old_until_ns", BigInteger),
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger),
    Column("revoked_ns", BigInteger),
)

# One row, which a trigger on `tokens` moves to another `version` at each change.
token_changes = Table(
    "token_changes",
    metadata,
    Column("singleton", Boolean, CheckConstraint("singleton"), primary_key=True, server_default=text("true")),
    Column("version", Text, nullable=False),
)

# Whose a job or a node is (`kind`: job, node): the cluster whose token spoke of it first, or an administrator's word.
claims = Table(
    "claims",
    metadata,
    *(Column(name, Text, primary_key=True) for name in ("kind", "name")),
    Column("cluster", Text, nullable=False),
    Column("at_ns", BigInteger, nullable=False, server_default=text("0")),
    Column("who", Text, nullable=False, server_default=text("''")),
)

# What was done to tokens, and who tried to speak for another.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at_ns", BigInteger, nullable=False),
    *(Column(name, Text, nullable=False) for name in ("who", "what")),
    Column("detail", JSONB, nullable=False),
)
