"""What `ett-agent doctor` looks at, one noun a file."""
