"""The tuning database: which plan took how long, for which pattern, kernel, GPU and compiler (docs/database.md)."""
