"""The process that reads a folder for the agent: hostile files meet it, and never the agent itself."""
