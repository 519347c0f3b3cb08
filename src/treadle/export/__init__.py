"""Ahead-of-time bundles of kernels.
"""
