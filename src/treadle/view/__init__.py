"""Pictures of programs and plans, for the terminal and as one self-contained page."""
