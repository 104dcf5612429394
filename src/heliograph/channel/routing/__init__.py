"""Which receivers get an event: conditions, the generated function of a route, the index of many filters,
groups."""
