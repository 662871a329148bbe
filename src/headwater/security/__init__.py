"""Who may do what. Decisions only; no I/O."""
