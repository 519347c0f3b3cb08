"""Benchmark suites and the peers that they compare with. Timings are recorded, never asserted."""
