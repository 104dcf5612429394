"""A Spark session that is set up for events, and the Java it runs on."""
