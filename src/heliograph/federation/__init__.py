"""Federations of domains: gateways carry events from one domain into another, each event once."""
