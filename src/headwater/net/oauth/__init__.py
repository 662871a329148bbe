"""Bearer tokens on the network: tokens from an endpoint, and the keys that check them."""
