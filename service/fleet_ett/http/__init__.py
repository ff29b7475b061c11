"""The HTTP surface: thin routes that parse, ask and shape. Knows no database."""
