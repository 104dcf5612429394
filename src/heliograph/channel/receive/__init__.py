"""The way out: subscriptions that are called, consumers that are asked, acknowledgements, dead letters."""
