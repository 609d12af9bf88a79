"""Parts of a front end that no file format has for itself."""
