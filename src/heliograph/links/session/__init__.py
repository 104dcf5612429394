"""One pair of stations: messages, numbered streams, acknowledgement and resend, requests and replies."""
