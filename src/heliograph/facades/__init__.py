"""Vocabularies of other standards as thin layers over channels."""
