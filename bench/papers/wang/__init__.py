"""What Wang and others do not measure of their design: resends, recovery, starvation."""
