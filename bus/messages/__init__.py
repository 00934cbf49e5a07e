"""The messages of the bus: frozen, keyword-only structs with a versioned kind."""
