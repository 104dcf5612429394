"""A station's view of its peers: egress, ingress, failure detection."""
