"""Ahead-of-time bundles of kernels: artifacts, their guards and what loads them without a compiler."""
