"""Benchmarks: variants run interleaved in one process, and each leaves a row in results.csv."""
