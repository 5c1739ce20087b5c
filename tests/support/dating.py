"""Records in a log at times of their own: as if each came alone out of an archive."""

from controlplane.origin import IMPORTED, RECORDED_AT, Origin


def dated(at, place):
    """Headers by which the record at revision ``place`` was recorded ``at``."""
    origin = Origin("0" * 32, place, place)
    return {RECORDED_AT: at.isoformat(), IMPORTED: origin.text}
