"""Makes a fast program of a jaxpr. Does not depend on nodes, operators or models."""
