"""Speed of tierctl beside its rivals: `make bench`. CONTRIBUTING.md describes how to add a row."""
