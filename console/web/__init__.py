"""The operator's page: rendered on the server, live in the browser, each act audited."""
