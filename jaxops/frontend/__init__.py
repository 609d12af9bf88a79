"""The parts of a front end that are the same for every file format."""
