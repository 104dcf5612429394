"""Channels in Spark Declarative Pipelines: a project to begin with, and a command that runs it."""
