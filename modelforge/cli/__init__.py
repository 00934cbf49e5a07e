"""The `modelforge` command line, one module for each noun."""
