"""Puts sglang-router before two mkgen serve processes and kills one of them while clients ask: check.py URL KEY.

Then more clients ask than have room: they are told so, and the router goes on using the replica.

The program is $MKGEN, with $MKGEN_API_KEY. URL is another server, which says what the answers must be. Every request may be repeated, since it is greedy
or has a seed: the router and the client do that, and for a stream that breaks off whoever reads it. None may be lost, and none may be another's.
"""

import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import openai

url, key = sys.argv[1:]
REQUESTS = 40


def free_port():
    """Returns a port that nobody has just now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def healthy(address):
    try:
        request = urllib.request.Request(address + "/health", headers={"Authorization": f"Bearer {key}"})
        return urllib.request.urlopen(request, timeout=2).status == 200
    except OSError:
        return False


def wait(address, process, what):
    for _ in range(600):
        if healthy(address):
            return
        assert process.poll() is None, f"{what} ended"
        time.sleep(0.1)
    raise AssertionError(f"{what} is not there after a minute")


def requests():
    for i in range(REQUESTS):
        yield dict(model="tiny", prompt=f"Once upon a time {i}", max_tokens=8, temperature=0 if i % 2 else 1, seed=i)


def ask(client, request, stream):
    """Returns the text of an answer; one that breaks off is asked for again."""
    for _ in range(10):
        try:
            if not stream:
                return client.completions.create(**request).choices[0].text
            text, finish = "", None
            for event in client.completions.create(**request, stream=True):
                text, finish = text + event.choices[0].text, event.choices[0].finish_reason
            if finish is not None:
                return text
        except (openai.APIConnectionError, openai.InternalServerError, openai.APIError, ConnectionError) as error:
            print("repeated:", type(error).__name__, flush=True)
        except Exception as error:  # noqa: BLE001: what the HTTP library raises within a stream
            if type(error).__module__.split(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2"):
                raise
            print("repeated:", type(error).__name__, flush=True)
        time.sleep(0.2)
    raise AssertionError(f"lost: {request}")


def overload(client):
    """Asks 40 times at once; returns how many were told that the queue is full. None may be told anything else."""
    def one(i):
        try:
            return len(client.completions.create(model="tiny", prompt=f"{i}", max_tokens=16, extra_body={"ignore_eos": True}).choices)
        except openai.RateLimitError:
            return 0

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        full = list(pool.map(one, range(40))).count(0)
    assert full > 0, "no queue was full"
    assert one(0) == 1, "behind full queues"
    return full


def main(started, folder):
    ports = [free_port() for _ in range(4)]
    replicas = [f"http://127.0.0.1:{port}" for port in ports[:2]]
    for i, address in enumerate(replicas):
        log = open(f"{folder}/replica{i}", "w")
        started.append(subprocess.Popen([os.environ["MKGEN"], "serve", "--model", "tiny", "--rows", "4", "--queue", "8", "--pin-split", "32", "--quiet",
                                         "--listen", address.removeprefix("http://")], stderr=log))
    for address, process in zip(replicas, started):
        wait(address, process, address)
    log = open(f"{folder}/router", "w")
    started.append(subprocess.Popen([
        sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(ports[2]), "--prometheus-port", str(ports[3]),
        "--worker-urls", *replicas, "--policy", "round_robin", "--api-key", key, "--health-check-endpoint", "/health",
        "--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--disable-circuit-breaker", "--worker-startup-check-interval", "1"],
        stdout=log, stderr=log))
    router = f"http://127.0.0.1:{ports[2]}"
    wait(router, started[2], "the router")

    alone = openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=120)
    want = [ask(alone, request, False) for request in requests()]
    client = openai.OpenAI(base_url=router + "/v1", api_key=key, max_retries=8, timeout=120)
    for _ in range(100):  # until the router knows both
        try:
            client.with_options(max_retries=0).completions.create(model="tiny", prompt="a", max_tokens=1)
            break
        except openai.APIError:
            time.sleep(0.1)
    assert [model.id for model in client.models.list()] == ["tiny"], "the router has the model's name from /server_info"
    done = threading.Semaphore(0)

    def one(i, request):
        text = ask(client, request, i % 3 == 0)
        done.release()
        return text

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(one, i, request) for i, request in enumerate(requests())]
        for _ in range(REQUESTS // 4):
            done.acquire()
        started[0].send_signal(signal.SIGKILL)
        got = [answer.result() for answer in answers]
    assert got == want, [pair for pair in zip(got, want) if pair[0] != pair[1]]
    for i in range(4):  # the one that is left
        assert ask(client, dict(model="tiny", prompt=f"Once upon a time {i}", max_tokens=8, temperature=0 if i % 2 else 1, seed=i), False) == want[i]
    full = overload(client.with_options(max_retries=0))
    print(f"ok {full} of 40 requests beyond what the replica has room for, and the next is answered")
    print(f"ok {REQUESTS} requests, one of two replicas killed after {REQUESTS // 4}")


with tempfile.TemporaryDirectory() as folder:
    started = []
    try:
        main(started, folder)
    except BaseException:
        for name in ("router", "replica0", "replica1"):
            if os.path.exists(f"{folder}/{name}"):
                print(name, open(f"{folder}/{name}").read()[-3000:], flush=True)
        raise
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
