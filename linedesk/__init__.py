"""The only room that wires the others together: settings, logs, commands, the embedded mongod."""
