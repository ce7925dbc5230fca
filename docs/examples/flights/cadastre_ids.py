"""Ids from a Cadastre agent, one or many at a time. Standard library only: copy this file.

A retry is always safe and always gets *other* ids: what an answer that got lost held is a gap, and nothing
else happened. So there is nothing to remember between two tries, and no idempotency key to send. What must
happen once is your own row; give that a key (see load.py).

One object per thread: it keeps one connection open.
"""

import http.client
import json
import random
import time
from urllib.parse import urlsplit


class Refused(Exception):
    """A refusal that waiting does not change. `code` is stable; the text is for people."""

    def __init__(self, status, code, detail):
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code


class Ids:
    """Ids of one namespace from one agent."""

    # Above what the agent may wait for a refill (250 ms unless the header Cadastre-Timeout-Ms says otherwise).
    TIMEOUT_SECONDS = 2.0
    # The agent's limit of one list. A service may have a lower one: the refusal (413) names it.
    MOST = 10_000

    def __init__(self, agent_url, token, namespace, patience_seconds=120.0):
        self.address = urlsplit(agent_url)
        self.token = token
        self.namespace = namespace
        self.patience_seconds = patience_seconds
        self.connection = None
        # For the curious: answers that did not come, and refusals that were waited out.
        self.lost = 0
        self.waited = 0

    def one(self):
        return int(self._ask({"namespace": self.namespace})["id"])

    def many(self, count):
        """`count` ids; they rise within one answer, and need not be consecutive."""
        ids = []
        while len(ids) < count:
            part = min(self.MOST, count - len(ids))
            # Ids are strings in JSON, since JavaScript rounds numbers above 2^53. Python's int holds them all.
            ids += map(int, self._ask({"namespace": self.namespace, "count": part})["ids"])
        return ids

    def _ask(self, body):
        """Asks until it is answered, is refused for good, or patience ends."""
        patience_ends = time.monotonic() + self.patience_seconds
        pause = 0.05
        while True:
            try:
                status, retry_after, answer = self._post(body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                # No answer, or half of one. The ids in it, if there were any, are a gap. Ask again.
                self._close()
                self.lost += 1
                status, retry_after, failure = None, None, error
            else:
                if status == 200:
                    return answer
                failure = Refused(status, answer.get("code"), answer.get("detail"))
                # Only a 503 or 429 *with* Retry-After can be waited out. Without it (`exhausted`: no number is
                # left, for good) or with another status (token, namespace, body) waiting changes nothing.
                if status not in (429, 503) or retry_after is None:
                    raise failure
                self.waited += 1
            # Retry-After is honoured: the agent knows when asking again makes sense. Where nobody answered, the
            # wait grows. A random part in both, so that many callers do not come back in the same instant.
            wait = retry_after * (1 + random.random() / 4) if retry_after else pause * (0.5 + random.random())
            pause = min(pause * 2, 2.0)
            if time.monotonic() + wait > patience_ends:
                raise failure
            time.sleep(wait)

    def _post(self, body):
        if self.connection is None:
            kind = http.client.HTTPSConnection if self.address.scheme == "https" else http.client.HTTPConnection
            self.connection = kind(self.address.hostname, self.address.port, timeout=self.TIMEOUT_SECONDS)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.connection.request("POST", "/v1/ids", json.dumps(body), headers)
        response = self.connection.getresponse()
        text = response.read()
        retry_after = response.headers.get("Retry-After")
        return response.status, retry_after and float(retry_after), json.loads(text)

    def _close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
