"""Models in other types, and on several devices."""
