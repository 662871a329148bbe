"""The group coordinator as machines: classic and consumer groups, and the offsets they commit."""
