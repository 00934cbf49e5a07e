"""The only room that knows model libraries and file formats."""
