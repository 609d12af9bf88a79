"""Makes a fast program of a jaxpr. Knows no node, no operator and no model."""
