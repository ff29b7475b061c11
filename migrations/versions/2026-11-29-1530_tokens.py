"""Access: tokens, whose cluster a job or a node is, and the audit log.

Revision: 2026_11_29_1530
Revises: 2026_11_29_1515
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_1530"
down_revision = "2026_11_29_1515"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE tokens (
    token_id text PRIMARY KEY,
    name text NOT NULL,
    scope text NOT NULL,
    clusters text[] NOT NULL,
    nodes text[] NOT NULL,
    teams text[] NOT NULL,
    rate integer NOT NULL,
    secret_hash bytea NOT NULL,
    old_hash bytea,
    old_until_ns bigint,
    created_ns bigint NOT NULL,
    expires_ns bigint,
    revoked_ns bigint
);
CREATE TABLE claims (
    kind text NOT NULL,
    name text NOT NULL,
    cluster text NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ns bigint NOT NULL,
    who text NOT NULL,
    what text NOT NULL,
    detail jsonb NOT NULL
);
"""


def upgrade() -> None:
    """Make the tables; without a token the service stays open on loopback."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(TABLES)


def downgrade() -> None:
    """Drop the tables with all tokens: their bearers are strangers again."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE audit, claims, tokens")
