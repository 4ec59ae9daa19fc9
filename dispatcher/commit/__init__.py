"""All durable writes of a leader, in groups under one fence, and what it has finished."""
