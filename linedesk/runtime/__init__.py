"""Parts of every process: threads, clocks, signals, metrics, the service manager, the log."""
