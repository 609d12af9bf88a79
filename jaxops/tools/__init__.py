"""What people do with a model, or with its graph. Nothing here knows a file format."""
