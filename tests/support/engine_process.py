"""An engine for sidecars to run: ``python engine_process.py PORT [TRAIT…]``.

It answers as vLLM does, and does as it is told over HTTP: ``/sick``, ``/well``,
``/busy/3``. Traits: ``deaf`` ignores SIGTERM and SIGINT, ``loading`` begins sick,
``flapping`` is sick at every second probe, ``parent`` leaves a grandchild behind that
is as deaf and in a session of its own.
"""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CODE = 7
PAGE = """# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {busy}.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.25
"""
SLEEPER = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""


class Engine(BaseHTTPRequestHandler):
    sick = False
    busy = 0
    probes = 0
    flapping = False
    signals: list[str] = []
    adapters: frozenset[str] = frozenset()
    kin = 0

    def do_GET(self) -> None:
        cls = type(self)
        match self.path.split("/")[1:]:
            case ["health"]:
                cls.probes += 1
                ill = cls.sick or (cls.flapping and cls.probes % 2 == 0)
                self._answer(503 if ill else 200, "loading the model" if ill else "")
            case ["v1", "models"]:
                base = {"id": "m", "parent": None}
                loaded = [{"id": name, "parent": "m"} for name in cls.adapters]
                self._answer(200, json.dumps({"data": [base, *loaded]}))
            case ["load" | "unload" as how, name]:
                cls.adapters = cls.adapters | {name}
                cls.adapters -= {name} if how == "unload" else set()
                self._answer(200, how)
            case ["metrics"]:
                self._answer(200, PAGE.format(busy=cls.busy))
            case ["sick" | "well" as how]:
                cls.sick = how == "sick"
                self._answer(200, how)
            case ["busy", count]:
                cls.busy = int(count)
                self._answer(200, count)
            case _:
                self._answer(200, json.dumps(self._told()))

    def _told(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "argv": sys.argv[1:],
            "environ": dict(os.environ),
            "signals": self.signals,
            "probes": self.probes,
            "kin": self.kin,
        }

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def end(*_: object) -> None:
    os._exit(CODE)


def note(number: int, _: object) -> None:
    Engine.signals.append(signal.Signals(number).name)


def main() -> None:
    port, *traits = sys.argv[1:]
    deaf = "deaf" in traits
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note if deaf else end)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, note)
    if "parent" in traits:
        kin = subprocess.Popen(
            [sys.executable, "-c", SLEEPER],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert kin.stdout.readline() == b"up\n"
        Engine.kin = kin.pid
    Engine.sick, Engine.flapping = "loading" in traits, "flapping" in traits
    ThreadingHTTPServer(("127.0.0.1", int(port)), Engine).serve_forever()


if __name__ == "__main__":
    main()
