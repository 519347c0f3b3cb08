"""Other systems: calling kernels from torch, capture in CUDA graphs."""
