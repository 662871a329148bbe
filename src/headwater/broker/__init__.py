"""The broker: puts machines, log and network together. `node.py` knows them all."""
