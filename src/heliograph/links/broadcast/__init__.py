"""One shared-memory ring per station, read by every station of the host."""
