"""`read` and `readStream.format("heliograph")`: histories as data frames and streams."""
