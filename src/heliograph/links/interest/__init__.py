"""What a station wants of others' channels, and whether two stations' channels go together."""
