/** Answers of the query API, read again when the fleet has changed. */

import { signal } from "@preact/signals";

import { now } from "../clock.js";
import { useEffect, useMemo } from "../ui/html.js";
import { fleetFeed } from "./fleet.js";

/** Milliseconds between two requests, also if the fleet changes all the time. */
const PAUSE = 10_000;
/** Milliseconds after a failure. */
const AFTER_FAILURE = 30_000;
/** Maximum number of answers that are remembered, so that Back shows rows at once. */
const MOST = 12;

/**
 * @template T
 */
class Resource {
  /** @param {(abort: AbortSignal) => Promise<T>} load */
  constructor(load) {
    this.load = load;
    this.state = signal({
      data: /** @type {T | null} */ (null), error: /** @type {import("./rest.js").RequestError | null} */ (null),
      since: now(), retryAt: 0,
    });
    this.version = -1;
    this._timer = 0;
    this._began = -Infinity;
    /** @type {AbortController | null} */
    this._abort = null;
  }

  /** Read again now. */
  async reload() {
    clearTimeout(this._timer);
    this._abort?.abort();
    const abort = new AbortController();
    this._abort = abort;
    this._began = performance.now();
    this.version = fleetFeed().version.peek();
    try {
      const data = await this.load(abort.signal);
      if (!abort.signal.aborted) this.state.value = { data, error: null, since: now(), retryAt: 0 };
    } catch (error) {
      if (abort.signal.aborted) return;
      const retryAt = now() + AFTER_FAILURE / 1000;
      this.state.value = { ...this.state.peek(), error: /** @type {any} */ (error), since: now(), retryAt };
      this._timer = setTimeout(() => this.reload(), AFTER_FAILURE);
    }
  }

  /** Read again if the fleet has changed since. */
  refresh() {
    if (document.hidden || this.state.peek().error || this.version === fleetFeed().version.peek()) return;
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this.reload(), Math.max(0, this._began + PAUSE - performance.now()));
  }

  stop() {
    clearTimeout(this._timer);
  }
}

/** @type {Map<string, Resource<any>>} */
const known = new Map();

/**
 * Read an answer while a component is visible.
 *
 * @template T
 * @param {string} key identifies the answer
 * @param {(abort: AbortSignal) => Promise<T>} load
 * @returns {Resource<T>}
 */
export function useResource(key, load) {
  const resource = useMemo(() => {
    const found = known.get(key) ?? new Resource(load);
    known.delete(key);
    known.set(key, found);
    if (known.size > MOST) known.delete(/** @type {string} */ (known.keys().next().value));
    return found;
  }, [key]);
  useEffect(() => {
    const { state } = resource;
    if (state.peek().data === null || state.peek().error) resource.reload();
    const end = fleetFeed().version.subscribe(() => resource.refresh());
    return () => {
      end();
      resource.stop();
    };
  }, [resource]);
  return resource;
}
