"""Folds the log, publishes the view, expires the dead: the projection service."""
