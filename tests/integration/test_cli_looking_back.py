"""``diff``, ``explain`` and ``bisect`` over a real log, and with routers' checkpoints.

S37: the diff of two replicas is empty. S56: why a worker is not routable, from the log.
"""

import controlplane as cp
from controlplane.identifiers import new_uuid7
from tests.support.commands import command, register, registration
from tests.support.servers import unique


def stopped(event: cp.WorkerRegistered) -> cp.WorkerDeregistered:
    """Its farewell."""
    return cp.WorkerDeregistered(
        event_id=new_uuid7(),
        at=event.at,
        by="test",
        namespace=event.namespace,
        worker_id=event.worker_id,
        incarnation=event.incarnation,
        reason="rollout",
    )


async def test_the_log_is_looked_back_at(shared_nats_server, tmp_path):
    url, cell = shared_nats_server.url, unique("back")
    where = {"NATS_URL": url, "CP_CELL": cell}
    paths = [str(tmp_path / f"{name}.ckpt") for name in "ab"]
    async with cp.connect(url, cell=cell) as plane:
        await plane.init()
        w1 = registration("w1")
        await plane.log.append(w1)
        async with cp.Projector(plane, http="127.0.0.1:0"):
            for path in paths:
                async with plane.view(checkpoint=path, announce=False) as view:
                    await view.synced(20)
        await plane.hold("prod", "w1", reason="noisy", by="alice")
        await plane.log.append(stopped(w1))
    await register(url, "w2", cell=cell)

    replicas = await command("diff", *paths, "-o", "json")
    assert replicas.code == 0, replicas
    empty = {"from": 1, "to": 1, "removed": [], "changed": [], "added": []}
    assert replicas.document == empty

    differs = await command("diff", paths[0], "4", "-o", "json", **where)
    assert differs.code == 0, differs
    (gone,), (come,) = differs.document["removed"], differs.document["added"]
    assert (gone["worker"], gone["revision"]) == ("prod/w1", 3)
    assert (come["worker"], come["revision"]) == ("prod/w2", 4)

    held = await command("explain", "prod/w1", "--at", "2", **where)
    assert held.code == 0, held
    assert "held by alice since revision 2: noisy" in held.out
    then = await command("explain", "prod/w1", "--at", paths[1], "-o", "json", **where)
    assert then.code == 0, then
    assert (then.document["revision"], then.document["state"]) == (1, "routable")

    found = await command(
        "bisect", "--first", 'not worker("prod/w1").routable', "-o", "json", **where
    )
    assert found.code == 0, found
    assert found.document["revision"] == 2
    assert found.document["record"]["event"]["by"] == "alice"


async def test_a_checkpoint_of_another_log_is_no_moment_of_this_one(
    shared_nats_server, tmp_path
):
    url, path = shared_nats_server.url, str(tmp_path / "router.ckpt")
    async with cp.connect(url, cell=unique("other")) as plane:
        await plane.init()
        await plane.log.append(registration("w1"))
        async with (
            cp.Projector(plane, http="127.0.0.1:0"),
            plane.view(checkpoint=path, announce=False) as view,
        ):
            await view.synced(20)
    async with cp.connect(url, cell=unique("this")) as plane:
        await plane.init()
        await plane.log.append(registration("w2"))
        where = {"NATS_URL": url, "CP_CELL": plane.cell}
    refused = await command("explain", "prod/w1", "--at", path, **where)
    assert refused.code == 64, refused
    assert "is of log" in refused.err
    differs = await command("diff", path, "1", "-o", "json", **where)
    assert differs.code == 0, differs
    assert [w["revision"] for w in differs.document["added"]] == [None]
