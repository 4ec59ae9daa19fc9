"""Other Python task queues and their servers, set up as their own documentation advises."""
