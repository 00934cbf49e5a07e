"""The operator's screens; they talk through the bus alone."""
