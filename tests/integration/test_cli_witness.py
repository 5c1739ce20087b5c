"""What a router saw, and whether everybody agrees, over a real server.

S34: whoever differs from the log is found and named, long after. S47b: what was purged
on purpose is no loss.
"""

import msgspec

import controlplane as cp
from controlplane.broker import Outgoing
from controlplane.identifiers import new_uuid7
from controlplane.presence import reports
from controlplane.topology import LOG_ID, streams
from projections import WorkerPut, apply
from tests.support.commands import command, registration
from tests.support.servers import unique
from tests.support.waiting import eventually

PATIENCE_S = 20.0


def expired(event: cp.WorkerRegistered) -> cp.WorkerExpired:
    """What the leader says when nothing is heard of it."""
    return cp.WorkerExpired(
        event_id=new_uuid7(),
        at=event.at,
        by="test",
        namespace=event.namespace,
        worker_id=event.worker_id,
        incarnation=event.incarnation,
        silent_for_s=12.0,
        observed_by="test",
    )


async def reported(plane, router, reason):
    """The router's reports, once one has this reason."""

    async def there():
        found = await reports(plane.broker, plane.names, router)
        return found if any(one.reason == reason for one in found) else None

    return await eventually(there, PATIENCE_S)


async def test_a_router_s_past_can_be_asked_for_and_is_held_against_the_log(
    shared_nats_server,
):
    """S34: memory that was tampered with is noticed, repaired, told, and remembered."""
    url, cell = shared_nats_server.url, unique("seen")
    where = {"NATS_URL": url, "CP_CELL": cell}
    async with cp.connect(url, cell=cell) as plane:
        await plane.init()
        w1, w2 = registration("w1"), registration("w2")
        for event in (w1, w2):
            await plane.log.append(event)
        async with (
            cp.Projector(plane, http="127.0.0.1:0"),
            plane.view(name="r1") as view,
        ):
            await view.synced(PATIENCE_S)
            view.eject(view.fleet.worker("prod", "w1"), 60)
            await reported(plane, "r1", "ejected")
            await plane.log.append(expired(w2))
            await view.wait_for(3, PATIENCE_S)
            whole = await command("log", "verify", "-o", "json", **where)
            assert whole.code == 0, whole
            assert whole.document["routers"] == ["r1"]
            for kind in ("delta", "epoch", "report"):
                count = whole.document["compared"][kind]
                assert count["said"] == count["equal"] > 0, kind

            right = view.digest
            wrong = tamper(view)
            assert wrong != right
            await reported(plane, "r1", "divergence")
            await reported(plane, "r1", "resync: divergence")
            assert view.digest == right
        differs = await command("log", "verify", **where)
        assert differs.code == 1, differs
        assert "first divergence: another fleet, at revision 3" in differs.out
        assert "router r1 at" in differs.out
        assert wrong in differs.out
        assert right in differs.out

        ejected = await command(
            "explain", "prod/w1", "--router", "r1", "--at", "3", "-o", "json", **where
        )
        assert ejected.code == 0, ejected
        assert ejected.document["would_pick"] == "no"
        assert ejected.document["router"]["ejected"] == ["prod/w1"]
        seen = await command(
            "replay", "--as-seen-by", "r1", "--until", "3", "-o", "json", **where
        )
        assert seen.code == 0, seen
        assert (seen.document["revision"], seen.document["agrees"]) == (2, True)
        assert seen.document["log"]["lag"] == 1
        (gone,) = seen.document["log"]["differences"]["removed"]
        assert (gone["worker"], gone["revision"]) == ("prod/w2", 3)
        nobody = await command("replay", "--as-seen-by", "r2", **where)
        assert nobody.code == 1, nobody
        assert "those that did: r1" in nobody.err


def tamper(view):
    """Change a worker in the router's memory; the digest it has then."""
    own = view._core.replica
    worker = msgspec.structs.replace(
        own.fleet.workers["prod", "w1"], address="http://elsewhere:1"
    )
    fleet = apply(own.fleet, [WorkerPut(worker)])
    view._core.replica = msgspec.structs.replace(own, fleet=fleet)
    return view.digest


async def test_holes_are_no_loss_and_a_log_put_back_is_a_fork(shared_nats_server):
    url, cell = shared_nats_server.url, unique("fork")
    where = {"NATS_URL": url, "CP_CELL": cell}
    async with cp.connect(url, cell=cell) as plane:
        await plane.init()
        w1 = registration("w1")
        async with (
            cp.Projector(plane, http="127.0.0.1:0"),
            plane.view(name="r1") as view,
        ):
            await view.synced(PATIENCE_S)
            await plane.log.append(w1)
            block = await plane.ports.claim(2, host="10.9.9.9", bind_check=False)
            await plane.ports.release(block)
            await plane.log.append(expired(w1))
            await view.wait_for(6, PATIENCE_S)
        log = plane.names.log_stream
        holes = plane.names.absolute("log.port.>")
        await plane.broker.purge_stream(log, subject=holes)
        purged = await command("log", "verify", "-o", "json", **where)
        assert purged.code == 0, purged
        assert (purged.document["records"], purged.document["removed"]) == (2, 4)
        assert purged.document["divergences"] == 0

        log_id = (await plane.log.state()).log_id
        await plane.broker.delete_stream(log)
        spec = streams(plane.names, plane.settings, 1)[0]
        same = msgspec.structs.replace(spec, metadata={LOG_ID: log_id})
        await plane.broker.create_stream(same)
        await plane.log.append(registration("w1"))
        forked = await command("log", "verify", **where)
        assert forked.code == 65, forked
        assert "first divergence: another record, at revision 1" in forked.out
        foreign = Outgoing(subject=plane.names.view, payload=b"?")
        await plane.broker.store(plane.names.view_stream, foreign)
        again = await command("log", "verify", "-o", "json", **where)
        assert again.code == 65, again
        assert again.document["foreign"] == 1
        assert again.document["verdict"] == "forked"
