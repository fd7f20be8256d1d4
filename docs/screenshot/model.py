#!/usr/bin/env python3
"""A scripted model server for the pictures in README.md and the transcripts in docs/tutorial.md.

It implements the part of the Ollama API that `push` uses, on a free port of the loopback interface, and prints its
address. The answers are fixed; the tool calls are real and run through the daemon, its approvals and its sandbox.

    export OLLAMA_HOST=$(python3 docs/screenshot/model.py --daemonize)    the server exits after one hour
"""

import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "qwen3:8b"


def call(tool, **arguments):
    return {"function": {"name": tool, "arguments": arguments}}


# One entry per model turn: the text, and the tool calls that follow it.
FIX = [
    ("I read the program first.", [call("sandbox_read_file", path="sum.sh")]),
    ("It subtracts.", [call("sandbox_edit_file", path="sum.sh", old="$1 - $2", new="$1 + $2")]),
    ("", [call("sandbox_exec", command="sh test.sh")]),
    ("", [call("sandbox_git_commit", message="Add the numbers instead of subtracting them", paths=["sum.sh"])]),
    ("sum.sh adds its arguments, and the test passes.", []),
]

# What follows after the user has denied a call with a reason.
REVISION = [
    ("I add a test for negative numbers.",
     [call("sandbox_edit_file", path="test.sh", old="echo passed",
           new='[ "$(sh sum.sh -2 -3)" = -5 ] || { echo "wrong: -2 + -3"; exit 1; }\necho passed')]),
    ("", [call("sandbox_exec", command="sh test.sh")]),
    ("", [call("sandbox_git_commit",
               message="Add the numbers instead of subtracting them\n\nA test covers negative numbers.",
               paths=["sum.sh", "test.sh"])]),
    ("sum.sh adds its arguments. The test covers negative numbers and passes.", []),
]


def next_turn(messages):
    """The turn that answers these messages: counted from the last message of the user, or from the last denial."""
    start = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=0)
    if "What does" in str(messages[start].get("content", "")):
        return ("sum.sh prints the sum of its two arguments; test.sh checks it.", [])
    script = FIX
    for i, message in enumerate(messages[start:], start):
        if message["role"] == "tool" and "denied" in str(message.get("content", "")).lower():
            start, script = i, REVISION
    done = sum(message["role"] == "assistant" for message in messages[start:])
    return script[min(done, len(script) - 1)]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send(self, lines, content_type="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.end_headers()
        for line in lines:
            self.wfile.write((json.dumps(line) + "\n").encode())
            self.wfile.flush()

    def do_GET(self):
        if self.path == "/api/tags":
            self.send([{"models": [{"name": MODEL, "model": MODEL, "size": 5225388164}]}])
        elif self.path == "/api/version":
            self.send([{"version": "0.6.0"}])
        else:
            self.send_error(404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path == "/api/show":
            return self.send([{"model_info": {"qwen3.context_length": 40960}, "capabilities": ["completion", "tools"]}])
        if self.path != "/api/chat":
            return self.send_error(404)
        text, calls = next_turn(body.get("messages", []))
        self.send(self.deltas(text, calls), "application/x-ndjson")

    def deltas(self, text, calls):
        for word in re.findall(r"\S+\s*", text):
            time.sleep(0.03)
            yield self.line(content=word)
        if calls:
            time.sleep(0.2)
            yield self.line(tool_calls=calls)
        yield {**self.line(), "done": True, "done_reason": "stop", "prompt_eval_count": 900, "eval_count": 40}

    @staticmethod
    def line(content="", **more):
        message = {"role": "assistant", "content": content, **more}
        return {"model": MODEL, "created_at": "2025-01-01T00:00:00Z", "message": message, "done": False}


def start():
    """Starts the server in a thread and returns its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    if "--daemonize" in sys.argv[1:]:
        if os.fork():
            os._exit(0)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        threading.Timer(3600, lambda: os._exit(0)).start()
    server.serve_forever()
