"""What carries frames between stations, and how stations find each other."""
