"""What an event is: classes, formats, layouts, and how formats may change."""
