"""What the journal's files hold, byte by byte."""
