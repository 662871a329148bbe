"""Streams and tables over topics, planned onto Spark."""
