"""One line for each training framework. Each file imports its framework, and nothing else here does."""
