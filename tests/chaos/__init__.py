"""Everything fails at once, from the trainer to the database, and the books are those of a quiet run."""
