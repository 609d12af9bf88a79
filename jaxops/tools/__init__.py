"""What people do with a model."""
