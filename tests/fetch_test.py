"""`plimsoll fetch` against a stand-in hub on this machine: what it fetches, how it goes on, what it refuses."""
import hashlib
import http.server
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import command_run
from command_run import ROOT, output

COMMIT = "0123456789abcdef0123456789abcdef01234567"
USAGE, DAMAGED, STOPPED = 2, 4, 5
MODEL = ROOT / "demo/model"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def git_blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """A hub with one repository, and storage of large files at another address. `faults` lists what goes wrong next."""

    def __init__(self, files, name="Acme/Tiny", kind="models"):
        self.files, self.name, self.kind = files, name, kind
        self.requests = []  # (server, method, path, headers)
        self.faults = []  # functions of a handler, taken one by one by requests of content; True: it has answered
        self.wants_token = None
        self.api_status = []
        self.gate = None
        self.hub = self.serve("hub")
        self.storage = self.serve("storage")

    def serve(self, label):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.requests.append((label, self.path, dict(self.headers)))
                try:
                    (hub.answer if label == "hub" else hub.content)(self)
                except (BrokenPipeError, ConnectionResetError):
                    pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    @staticmethod
    def address(server):
        return f"http://127.0.0.1:{server.server_address[1]}"

    def close(self):
        for server in (self.hub, self.storage):
            server.shutdown()
            server.server_close()

    @staticmethod
    def send(handler, status, body=b"", **headers):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def listing(self):
        siblings = []
        for name, content in self.files.items():
            entry = {"rfilename": name, "size": len(content), "blobId": git_blob(content)}
            if name.endswith((".safetensors", ".bin", ".parquet")):
                entry["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
                entry["size"] = len(content)
            siblings.append(entry)
        return json.dumps({"id": self.name, "sha": COMMIT, "siblings": siblings}).encode()

    def answer(self, handler):
        if self.api_status:
            status, headers = self.api_status.pop(0)
            return self.send(handler, status, b"no", **headers)
        if self.wants_token and handler.headers.get("Authorization") != f"Bearer {self.wants_token}":
            return self.send(handler, 401, b"", X_Error_Code="RepoNotFound", X_Error_Message="Invalid username or password.")
        if handler.path.startswith(f"/api/{self.kind}/{self.name}/revision/main"):
            return self.send(handler, 200, self.listing())
        prefix = ("/datasets/" if self.kind == "datasets" else "/") + f"{self.name}/resolve/{COMMIT}/"
        name = handler.path[len(prefix):] if handler.path.startswith(prefix) else None
        if name not in self.files:
            return self.send(handler, 404, b"")
        if name.endswith(".safetensors"):
            return self.send(handler, 302, b"", Location=f"{self.address(self.storage)}/{name}?signature=1")
        return self.send(handler, 200, self.files[name], ETag=f'"{git_blob(self.files[name])}"')

    def content(self, handler):
        content = self.files[handler.path[1:].split("?")[0]]
        first = int(handler.headers["Range"].split("=")[1].rstrip("-")) if "Range" in handler.headers else 0
        if self.faults and self.faults.pop(0)(handler, content, first):
            return None
        if first:
            return self.send(handler, 206, content[first:],
                             Content_Range=f"bytes {first}-{len(content) - 1}/{len(content)}")
        return self.send(handler, 200, content)

    def ranges(self):
        return [headers.get("Range") for server, _, headers in self.requests if server == "storage"]


def cut_after(bytes_sent):
    def fault(handler, content, first):
        handler.send_response(206 if first else 200)
        handler.send_header("Content-Length", str(len(content) - first))
        handler.end_headers()
        handler.wfile.write(content[first:first + bytes_sent])
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True
        return True
    return fault


def answers(status, **headers):
    def fault(handler, content, first):
        Hub.send(handler, status, b"", **headers)
        return True
    return fault


def knows_no_ranges(handler, content, first):
    Hub.send(handler, 200, content)
    return True


def sends_other_bytes(handler, content, first):
    Hub.send(handler, 200, bytes(len(content)))
    return True


class FetchTest(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.folder = Path(self.place.name)
        self.weights = bytes(range(256)) * 4000
        self.files = {name: (MODEL / name).read_bytes() for name in os.listdir(MODEL) if name.endswith((".json", ".jinja"))}
        self.files |= {"model.safetensors": self.weights, "pytorch_model.bin": b"a pickle", "README.md": b"read me"}
        self.start(self.files)

    def start(self, files, **options):
        self.hub = Hub(files, **options)
        self.addCleanup(self.hub.close)
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith("HF_") and not name.lower().endswith("_proxy")}
        self.environment = kept | {"HF_HOME": str(self.folder / "hf"), "HF_ENDPOINT": Hub.address(self.hub.hub)}

    def fetch(self, *words, code=0, **environment):
        done = command_run.run("fetch", *words, env=self.environment | environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    @property
    def repository(self):
        return self.folder / "hf/hub/models--Acme--Tiny"

    @property
    def snapshot(self):
        return self.repository / "snapshots" / COMMIT

    def assert_whole(self):
        self.assertEqual((self.repository / "refs/main").read_text(), COMMIT)
        self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), self.weights)
        self.assertEqual(os.readlink(self.snapshot / "model.safetensors"), f"../../blobs/{sha256(self.weights)}")
        self.assertEqual(list(self.repository.rglob("*.incomplete")), [])
        self.assertEqual(list(self.repository.rglob("*.plimsoll*")), [])

    def test_the_cache_has_what_a_run_needs_and_nothing_that_runs_code(self):
        said = self.fetch("Acme/Tiny").stdout
        self.assertIn("plimsoll plan Acme/Tiny", said)
        self.assert_whole()
        names = sorted(path.name for path in self.snapshot.iterdir())
        self.assertEqual(names, sorted(name for name in self.files if name not in ("pytorch_model.bin", "README.md")))
        for name in names:
            self.assertEqual((self.snapshot / name).read_bytes(), self.files[name])
        before = len(self.hub.requests)
        again = json.loads(self.fetch("https://huggingface.co/Acme/Tiny/", "--json").stdout)
        self.assertEqual((again["received"], again["folder"]), (0, str(self.snapshot)))
        self.assertEqual(len(self.hub.requests), before + 1)  # the list of files alone

    def test_config_only_is_enough_to_plan_and_plan_says_how_to_get_it(self):
        refused = output("plan", "Acme/Tiny", "--length", 64, env=self.environment, code=USAGE)
        self.assertEqual([line for line in refused.splitlines() if "plimsoll fetch" in line],
                         ["  plimsoll fetch Acme/Tiny --config-only", "  plimsoll fetch Acme/Tiny"])
        self.fetch("Acme/Tiny", "--config-only")
        self.assertFalse((self.snapshot / "model.safetensors").exists())
        output("plan", "Acme/Tiny", "--length", 64, env=self.environment)

    def test_a_cut_connection_goes_on_where_it_was(self):
        self.hub.faults = [cut_after(300_000), cut_after(200_000)]
        done = self.fetch("Acme/Tiny")
        self.assert_whole()
        self.assertEqual(self.hub.ranges(), [None, "bytes=300000-", "bytes=500000-"])
        self.assertIn("trying again", done.stderr)

    def test_a_killed_fetch_leaves_no_model_and_goes_on(self):
        released = threading.Event()

        def stall(handler, content, first):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content[:400_000])
            handler.wfile.flush()
            released.wait(60)
            return True

        self.hub.faults = [stall]
        process = subprocess.Popen([str(command_run.PLIMSOLL), "fetch", "Acme/Tiny"], env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        partial = self.repository / "blobs" / f"{sha256(self.weights)}.incomplete"
        for _ in range(6000):
            if partial.exists() and partial.stat().st_size == 400_000:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        released.set()
        self.assertEqual(partial.stat().st_size, 400_000)
        self.assertFalse((self.repository / "snapshots").exists())
        self.fetch("Acme/Tiny")
        self.assertEqual(self.hub.ranges(), [None, "bytes=400000-"])
        self.assert_whole()

    def test_servers_without_ranges_and_leftovers_that_are_wrong_cost_time_alone(self):
        blobs = self.repository / "blobs"
        blobs.mkdir(parents=True)
        partial = blobs / f"{sha256(self.weights)}.incomplete"
        partial.write_bytes(self.weights[:1000])
        self.hub.faults = [knows_no_ranges]
        self.fetch("Acme/Tiny")
        self.assert_whole()
        (blobs / sha256(self.weights)).unlink()
        partial.write_bytes(b"x" * 1000)
        self.assertIn("from the start", self.fetch("Acme/Tiny").stderr)
        self.assert_whole()

    def test_a_wrong_checksum_is_refused_and_nothing_of_it_is_kept(self):
        self.hub.faults = [sends_other_bytes]
        self.assertIn("model.safetensors does not have the checksum", self.fetch("Acme/Tiny", code=DAMAGED).stderr)
        self.assertFalse((self.repository / "snapshots").exists())
        self.assertEqual(list((self.repository / "blobs").glob(f"{sha256(self.weights)}*")), [])
        self.fetch("Acme/Tiny")
        self.assert_whole()

    def test_the_hub_is_asked_again_when_it_says_so_and_not_forever(self):
        self.hub.api_status = [(429, {"Retry_After": "0"}), (503, {"Retry_After": "0"})]
        self.hub.faults = [answers(429, Retry_After="0")]
        self.assertIn("429 (too many requests); trying again", self.fetch("Acme/Tiny").stderr)
        self.assert_whole()
        self.hub.api_status = [(429, {"Retry_After": "0"})] * 9
        self.assertIn("answers 429", self.fetch("Acme/Tiny", code=STOPPED).stderr)
        self.assertEqual(len(self.hub.api_status), 4)
        self.hub.api_status = [(429, {"Retry_After": "4000"})]
        self.assertIn("it asks to wait for 4000 s", self.fetch("Acme/Tiny", code=STOPPED).stderr)

    def test_unknown_private_and_gated_repositories_say_what_to_do(self):
        refused = self.fetch("Acme/Other", code=USAGE).stderr
        self.assertIn("there is no repository of this name", refused)
        self.assertIn("a data set is fetched with --dataset", refused)
        self.hub.wants_token = "hf_secret"
        self.assertIn("set HF_TOKEN", self.fetch("Acme/Tiny", code=USAGE).stderr)
        self.assertIn("is not valid", self.fetch("Acme/Tiny", code=USAGE, HF_TOKEN="hf_wrong").stderr)
        self.hub.api_status = [(403, {"X_Error_Code": "GatedRepo"})]
        self.assertIn("accept its conditions", self.fetch("Acme/Tiny", code=USAGE, HF_TOKEN="hf_secret").stderr)
        self.hub.api_status = [(403, {"X_Error_Code": "GatedRepo"})]
        gated = self.fetch("acme/rows", "--dataset", code=USAGE, HF_TOKEN="hf_secret").stderr
        self.assertIn(f"at {Hub.address(self.hub.hub)}/datasets/acme/rows", gated)
        self.assertNotIn("hf_secret", refused)

    def test_the_token_goes_to_the_hub_alone(self):
        self.hub.wants_token = "hf_secret"
        self.fetch("Acme/Tiny", HF_TOKEN="hf_secret")
        self.assert_whole()
        sent = {(server, "Authorization" in headers) for server, _, headers in self.hub.requests}
        self.assertEqual(sent, {("hub", True), ("storage", False)})
        (self.folder / "hf/token").write_text("hf_secret\n")  # as `hf auth login` leaves it
        self.fetch("Acme/Tiny")

    def test_no_connection_is_opened_where_that_is_forbidden_or_nobody_is_there(self):
        self.assertIn("HF_HUB_OFFLINE=1 forbids", self.fetch("Acme/Tiny", code=USAGE, HF_HUB_OFFLINE="1").stderr)
        self.assertEqual(self.hub.requests, [])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
            self.assertIn("HF_ENDPOINT names another hub", self.fetch("Acme/Tiny", code=STOPPED, HF_ENDPOINT=nobody).stderr)
        self.assertIn("is not an address", self.fetch("Acme/Tiny", code=USAGE, HF_ENDPOINT="huggingface.co").stderr)
        self.assertIn("install it", self.fetch("Acme/Tiny", code=USAGE, PLIMSOLL_CURL="libno.so").stderr)
        for name in ("../../x", "a/b/c", "-x"):
            self.fetch("--", name, code=USAGE)
        self.fetch("Acme/Tiny", "--revision", "../../x", code=USAGE)

    def test_a_proxy_is_asked_where_one_is_named(self):
        proxy = Hub.address(self.hub.hub)
        self.fetch("Acme/Tiny", code=USAGE, HF_ENDPOINT="http://hub.invalid", http_proxy=proxy)
        self.assertTrue(self.hub.requests[0][1].startswith("http://hub.invalid/api/models/Acme/Tiny"))

    def test_two_at_once_receive_each_file_once(self):
        words = [str(command_run.PLIMSOLL), "fetch", "Acme/Tiny"]
        running = [subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                   for _ in range(2)]
        for process in running:
            said = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 0, said)
        self.assert_whole()
        self.assertEqual(len(self.hub.ranges()), 1)

    def test_pickles_alone_and_full_disks_are_refused_before_anything_is_received(self):
        self.start({"config.json": b"{}", "pytorch_model.bin": b"a pickle"})
        self.assertIn("pickles alone", self.fetch("Acme/Tiny", code=USAGE).stderr)
        self.start(self.files)
        listing = json.loads(self.hub.listing())
        for entry in listing["siblings"]:
            if "lfs" in entry and entry["rfilename"] == "model.safetensors":
                entry["lfs"]["size"] = 1 << 49
        self.hub.listing = lambda: json.dumps(listing).encode()
        refused = self.fetch("Acme/Tiny", code=STOPPED).stderr
        self.assertIn("512 TiB" if "TiB" in refused else "GiB", refused)
        self.assertIn("or put the cache elsewhere (HF_HUB_CACHE)", refused)
        self.assertEqual(self.hub.ranges(), [])

    def test_a_data_set_brings_its_rows(self):
        rows = (ROOT / "demo/data/facts/train.parquet").read_bytes()
        self.start({"data/train-00000-of-00001.parquet": rows, "README.md": b""}, name="acme/rows", kind="datasets")
        said = self.fetch("datasets/acme/rows").stdout
        self.assertIn("datasets--acme--rows", said)
        found = self.folder / "hf/hub/datasets--acme--rows/snapshots" / COMMIT / "data/train-00000-of-00001.parquet"
        self.assertEqual(found.read_bytes(), rows)
        recipe = self.folder / "recipe.json"
        recipe.write_text(json.dumps({"model": str(MODEL), "init": "random", "method": {"type": "full"},
                                      "data": {"train": "acme/rows", "max_length": 64}, "output": str(self.folder / "run")}))
        output("plan", recipe, env=self.environment)


if __name__ == "__main__":
    unittest.main()
