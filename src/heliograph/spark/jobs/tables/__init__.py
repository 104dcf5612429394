"""Tables that jobs write, as Parquet, Delta and Iceberg, each with the positions of its events."""
