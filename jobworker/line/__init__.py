"""LINE's API: the gate, the circuit breaker, rate limits, and the HTTP client."""
