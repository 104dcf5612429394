"""Events for other tools: JSON Schema, AsyncAPI, CloudEvents, and MCAP files for Foxglove and ROS 2."""
