"""Periodic tasks: response-time analysis, and subscriptions admitted by it."""
