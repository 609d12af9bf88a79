"""What people do with a model or a graph. Nothing here knows a file format, or what a front end is."""
