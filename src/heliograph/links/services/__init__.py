"""Services that stations do for each other by requests and replies: answers to questions of a channel."""
