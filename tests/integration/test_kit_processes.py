"""The process kit by itself: what each signal does to a process of one's own."""

import os
import signal
import socket

import pytest

from tests.support.processes import is_stopped
from tests.support.waiting import eventually

TALKER = """
import itertools, signal, sys, threading
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
threading.Thread(target=threading.Event().wait, daemon=True).start()
for n in itertools.count():
    print(n, flush=True)
    if stop.wait(0.002):
        break
print("goodbye", flush=True)
"""
ECHO = """
import socket, sys
with socket.socket(fileno=int(sys.argv[-1])) as channel:
    while piece := channel.recv(100):
        channel.sendall(piece.upper())
"""


@pytest.fixture
async def talker(processes):
    made = processes.start(TALKER)
    await eventually(lambda: len(made.said) > 10)
    return made


async def speaks_on(process):
    heard = len(process.said)
    await eventually(lambda: len(process.said) > heard)


async def test_the_killed_say_nothing_more(talker):
    talker.kill()
    assert not talker.running
    assert "goodbye" not in talker.said
    with pytest.raises(ProcessLookupError):
        os.kill(talker.pid, 0)


async def test_the_frozen_are_silent_when_freezing_returns_and_go_on_when_thawed(
    talker, processes
):
    """Another that goes on talking is the clock."""
    other = processes.start(TALKER)
    for _ in range(10):
        talker.freeze()
        heard = talker.said
        assert talker.frozen
        assert talker.running
        for _ in range(5):
            await speaks_on(other)
        assert talker.said == heard
        talker.thaw()
        await speaks_on(talker)
        assert not talker.frozen
    numbers = talker.said.split()[:-1]
    assert numbers == [str(n) for n in range(len(numbers))]


async def test_the_stopped_say_goodbye(talker):
    await talker.stop()
    assert not talker.running
    assert talker.said.endswith("goodbye\n")


async def test_the_frozen_can_be_killed_and_cleaned_up(processes):
    one, other = processes.start(TALKER), processes.start(TALKER)
    for process in (one, other):
        await speaks_on(process)
        process.freeze()
    one.kill()
    assert not one.running
    log = other.log
    processes.clean_up()
    assert not other.running
    assert not log.exists()


async def test_a_process_may_have_a_channel(processes):
    here, there = socket.socketpair()
    with here:
        with there:
            process = processes.start(ECHO, channel=there)
        here.sendall(b"word")
        assert here.recv(100) == b"WORD"
    await eventually(lambda: not process.running)


async def test_a_server_is_frozen_and_killed_and_starts_on_its_port(nats_server):
    server = await nats_server()
    port, pid = server.port, server.pid
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: is_stopped(pid))
    await server.kill()
    assert server.pid is None
    await server.start()
    assert server.port == port
    assert server.pid != pid
