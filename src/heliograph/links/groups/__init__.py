"""Groups whose members are in several stations."""
