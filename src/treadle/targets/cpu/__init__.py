"""The CPU target: families for vector and matrix units, their costs, and emission of LLVM IR."""
