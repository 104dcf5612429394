"""The way in: suppliers, the options of a push, batches, acknowledgement levels, delayed and periodic
events."""
