"""The front desk: takes LINE's webhooks, stores their events, and only then answers 200."""
