"""Histories that another station keeps: server and client, pages, durable positions, late joiners."""
