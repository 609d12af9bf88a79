"""Looks into models: nodes, shapes, parameters, arithmetic, differences."""
