"""Values derived from the language's own operations. Each rounds once: to f32, the expression, back."""
