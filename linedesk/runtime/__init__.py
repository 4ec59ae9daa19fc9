"""Parts of every process: threads, clocks, metrics, the service manager."""

PACKAGES = ("frontdesk", "dispatcher", "jobworker", "linedesk", "linemessages", "linesim")
