"""Ports to the operating system, timers, generated code, and other ground that every part stands on."""
