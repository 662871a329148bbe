"""The other end's side of the protocol: connections that send requests to a broker or controller.

Brokers, controllers and clients share this package; it knows no policy of any of them.
"""

from headwater.net.peer.connection import PeerConnection, as_is
from headwater.net.peer.errors import PeerError
from headwater.net.peer.handshake import connect
from headwater.net.peer.security import Login, PeerSecurity, PeerSource, no_security

__all__ = [
    "Login",
    "PeerConnection",
    "PeerError",
    "PeerSecurity",
    "PeerSource",
    "as_is",
    "connect",
    "no_security",
]
