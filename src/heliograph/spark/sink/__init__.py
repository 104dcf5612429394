"""`writeStream.format("heliograph")`: rows become events, each batch once."""
