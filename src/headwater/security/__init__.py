"""Authorization: operations on resources. No I/O."""
