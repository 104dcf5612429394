"""Streams between hosts: an event is encoded and put once, however many stations want it; see `publisher`."""
