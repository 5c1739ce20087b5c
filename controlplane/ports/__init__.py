"""PORTS: whole blocks of a host's ports, claimed in the log and checked on the spot."""
