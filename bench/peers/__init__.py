"""Other task queues in `bench record`, each set up as its own documentation advises."""
