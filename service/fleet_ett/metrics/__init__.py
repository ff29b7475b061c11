"""The Prometheus page: names, labels and types of the contract, from the books. Knows no database."""
