"""A node and its clients in one thread on one seed.

The twins of `headwater.io` stand here: virtual time (`loop`, `clock`), files that forget what was
not synced (`disk`), a network that delays and cuts (`network`), workers that finish at some later
moment (`workers`). A `World` holds them all and draws everything that is left to chance from its
seed, so the same seed gives the same history, and a failure is a number to replay.
"""
