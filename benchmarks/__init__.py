"""Benchmarks and sweeps: what is too long for the tests, and every number that is published."""
