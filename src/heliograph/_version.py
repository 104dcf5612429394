"""The one place that names the version; the wheel and `helio --version` read it."""

__version__ = "0.1.0"
