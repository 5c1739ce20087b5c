"""Follows the view and picks workers: what runs inside a router's process."""
