"""The CUDA target: families for each generation of tensor cores, their costs, and emission of CUDA C++."""
