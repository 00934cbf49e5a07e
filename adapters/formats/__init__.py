"""Pure, bounded parsers of model files: headers and small documents, never weights, never a model library."""
