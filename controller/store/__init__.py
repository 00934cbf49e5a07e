"""The ledger: one SQLite file, one writer, named queries, numbered migrations."""
