"""From text to artifact: LLVM through llvmlite, NVRTC, and what the assembler says read back.

Input that could abort the process is compiled in another one.
"""
