"""Events of classes that this program never saw: as plain data, as JSON, as classes made at run time."""
