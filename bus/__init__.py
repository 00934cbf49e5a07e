"""The shared language of the product: messages, states, errors, subjects, and the way to NATS."""
