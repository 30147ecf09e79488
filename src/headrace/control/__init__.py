"""How the queries of a running application stand, the orders to it, and the socket by which both pass."""
