"""Access: a mark of when tokens changed last, who claimed what and when.

Revision: 2026_11_29_1640
Revises: 2026_11_29_1530
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_1640"
down_revision = "2026_11_29_1530"
branch_labels = None
depends_on = None

CHANGES = """
CREATE TABLE token_changes (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version text NOT NULL
);
CREATE FUNCTION note_token_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_changes (version) VALUES (gen_random_uuid()::text)
    ON CONFLICT (singleton) DO UPDATE SET version = EXCLUDED.version;
    RETURN NULL;
END $$;
CREATE TRIGGER note_token_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON tokens
    FOR EACH STATEMENT EXECUTE FUNCTION note_token_change();
ALTER TABLE claims ADD COLUMN at_ns bigint NOT NULL DEFAULT 0, ADD COLUMN who text NOT NULL DEFAULT '';
"""


def upgrade() -> None:
    """Add the mark, which a trigger moves: a process asks for it, and not for all tokens."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(CHANGES)


def downgrade() -> None:
    """Drop both."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE claims DROP COLUMN at_ns, DROP COLUMN who")
    op.execute("DROP TRIGGER note_token_change ON tokens")
    op.execute("DROP FUNCTION note_token_change")
    op.execute("DROP TABLE token_changes")
