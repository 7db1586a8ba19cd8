"""One outage: a world of its own that is broken, and what Prometheus and the pager say of it."""

import threading
from contextlib import contextmanager

from edge import Devnet, Edge, ask, eventually

# For an alert whose ranges and `for` are shortened.
PATIENCE = 120


class Outage:
    """One outage: `start` makes its world, `play` breaks and mends it."""

    # The alerts that it fires: together, all of conf/prometheus/rules.
    alerts = ()
    keys = {"gateway__requests_per_minute": 100_000}

    def __init__(self, folder, exit_stack, calm):
        # `calm` is a node that several outages read from, and none disturbs
        self.folder, self.stack, self.calm = folder, exit_stack, calm
        self.name = type(self).__name__
        self.fired = set()
        folder.mkdir()

    def add(self, part):
        self.stack.callback(part.end)
        return part

    def start(self):
        """A gateway in front of the calm node."""
        self.serve(self.calm)

    def serve(self, node, **more):
        """Starts Portcullis in front of a node."""
        self.node = node
        self.edge = self.add(Edge(self.folder, node, **{**self.keys, **more}))
        eventually("a read", lambda: self.edge.read() == 200)
        if more.get("relay"):
            ready = "portcullis_relay_pins_ready"
            eventually("the pins", lambda: self.edge.metric(ready) == 1)

    def own_node(self, *arguments):
        return self.add(Devnet(self.folder, *arguments))

    def firing(self, alert):
        own = f'ALERTS{{alertname="{alert}",alertstate="firing",instance="{self.edge.admin}"}}'
        return self.prometheus.query(own)

    def fires(self, *alerts):
        """Waits until the alerts fire for this process."""
        for alert in alerts:
            assert alert in self.alerts, f"{alert} is not listed"
            eventually(f"{self.name}: {alert}", lambda name=alert: self.firing(name), PATIENCE)
            self.fired.add(alert)
            print(f"{self.name}: {alert}")

    def is_over(self, alert):
        """Waits until it fires no more."""
        eventually(f"{self.name}: the end of {alert}", lambda: not self.firing(alert), PATIENCE)

    def pages(self, alert):
        """Waits until the pager was called for it; returns all alerts that it was called for."""
        what = f"{self.name}: a page for {alert}"
        eventually(what, lambda: alert in self.alertmanager.paged(self.edge.admin)[0], PATIENCE)
        return self.alertmanager.paged(self.edge.admin)[0]

    def is_resolved(self, alert):
        """Waits until the pager received the end."""
        what = f"{self.name}: the end of {alert}"
        eventually(what, lambda: alert in self.alertmanager.paged(self.edge.admin)[1], PATIENCE)

    def operate(self, path, body, token=None, **headers):
        """Sends an operation to the relay; status and body."""
        token = token or (self.folder / "relay.token").read_text().strip()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://{self.edge.relay}{path}"
        return ask(url, body, {"authorization": f"Bearer {token}", **headers}, timeout=90)

    def reading(self):
        """Readers at work, each with one read at a time."""
        return self.repeating(lambda: self.edge.read(scheme=getattr(self, "scheme", "http")))

    @contextmanager
    def repeating(self, act, workers=4, pause=0.05):
        """Workers that repeat `act`, whether it succeeds or fails."""
        is_over = threading.Event()

        def work():
            while not is_over.is_set():
                try:
                    act()
                except OSError:
                    pass
                is_over.wait(pause)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
        for thread in threads:
            thread.join()
