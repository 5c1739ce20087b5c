"""Whose a claim may be: names that a worker could have, so that its lease can end."""

from __future__ import annotations

from events import (
    InvalidIdentityError,
    PortOwner,
    check_name,
    check_namespace,
    check_worker_id,
)


def check_owner(value: PortOwner) -> PortOwner:
    """Return ``value`` if a life may be called so, else raise `InvalidIdentityError`.

    Before anything is sent: what is in the log stays there, and whoever folds it has
    to expire this life some day.
    """
    if not isinstance(value, PortOwner):
        rule = "a PortOwner(namespace=…, worker_id=…, incarnation=…)"
        raise InvalidIdentityError(field="owner", value=value, rule=rule)
    check_namespace(value.namespace)
    check_worker_id(value.worker_id)
    check_name("incarnation", value.incarnation)
    return value
