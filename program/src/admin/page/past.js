// The points of the plots: those of the server, continued by those of the stream.

/** Milliseconds that the plots show at most, as many as the server stores. */
const LENGTH = 30 * 60_000;

export class Past {
  constructor() {
    /** Milliseconds between two points. */
    this.interval = 5_000;
    /** The right edge of the plots: the time of the newest snapshot. */
    this.end = 0;
    this.points = [];
  }

  /** Fetches the server's points: some may be missing after a reconnect. */
  async load() {
    this.isLoaded = true;
    const answer = await fetch('/history').catch(() => null);
    if (!answer?.ok) {
      // the next snapshot tries again
      this.isLoaded = false;
      return;
    }
    const { interval_s: interval, series, points } = await answer.json();
    this.interval = interval * 1000;
    this.add(points.map(({ at_ms, values }) => ({
      at_ms, values: Object.fromEntries(series.map((name, at) => [name, values[at]])),
    })));
  }

  /** Adds points, one per time. Those of a previous process stay until they are too old. */
  add(points) {
    const all = new Map([...this.points, ...points].map((point) => [point.at_ms, point]));
    this.points = [...all.values()].sort((a, b) => a.at_ms - b.at_ms);
  }

  /** Moves the right edge, and adds the newest point if there is one. */
  move(end, point) {
    this.end = end;
    if (!this.isLoaded) this.load();
    if (point) this.add([point]);
    this.points = this.points.filter(({ at_ms: at }) => at > end - LENGTH && at <= end);
  }
}
