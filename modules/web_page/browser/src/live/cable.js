/**
 * Rows that kas pushes: one connection of ActionCable, and a feed for each subscription.
 *
 * A feed stays for a while after its last reader, so that a tab opens with its rows.
 */

import { createConsumer } from "@rails/actioncable";
import { signal } from "@preact/signals";

import { now } from "../clock.js";
import { applyMessage } from "../lib/delta.js";
import { useEffect, useMemo } from "../ui/html.js";
import { getJson } from "./rest.js";
import { signedOut } from "./session.js";

/** Milliseconds between two redraws of the rows of a feed. */
const REDRAW = 250;
/** Milliseconds that a feed without readers stays. */
const LINGER = 20_000;
/** Milliseconds after which a hidden page ends its connection. */
const HIDDEN = 120_000;
/** Milliseconds until a refused subscription is repeated: first, and at most. */
const REFUSED = [15_000, 240_000];

/** @typedef {"connecting" | "open" | "lost"} ConnectionState */

/** The state of the connection, and its time in seconds. */
export const connection = signal({ state: /** @type {ConnectionState} */ ("connecting"), since: now() });

/** The time of the newest message, in seconds. */
export const heard = signal(0);

const url = new URL("/-/cable", location.href);
url.protocol = url.protocol.replace("http", "ws");
const consumer = createConsumer(url.href);

/** @param {ConnectionState} state */
function note(state) {
  if (connection.peek().state !== state) connection.value = { state, since: now() };
}

/** The rows of one subscription. */
export class Feed {
  /**
   * @param {string} key
   * @param {{channel: string, [name: string]: unknown}} params
   */
  constructor(key, params) {
    this.key = key;
    this.params = params;
    /** @type {Map<string, any>} */
    this.rows = new Map();
    /** Changes when the rows have changed. */
    this.version = signal(0);
    /** `loading` until the first rows, then `live`; `refused` if kas rejects the subscription. */
    this.state = signal(/** @type {"loading" | "live" | "refused"} */ ("loading"));
    /** Why kas rejected the subscription. */
    this.reason = signal("");
    this.status = signal(0);
    /** When this state began, in seconds. */
    this.since = signal(now());
    this.retryAt = signal(0);
    this.readers = 0;
    this._position = { epoch: null, sequence: 0 };
    /** @type {import("@rails/actioncable").Subscription | null} */
    this._subscription = null;
    this._redraw = 0;
    this._drawn = 0;
    this._retry = 0;
    this._refusals = 0;
  }

  open() {
    const tab = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
    this._subscription = consumer.subscriptions.create({ ...this.params, tab }, {
      connected: ({ reconnected }) => this._connected(reconnected),
      disconnected: ({ willAttemptReconnect }) => lost(willAttemptReconnect),
      rejected: () => this._rejected(),
      received: (message) => this._received(message),
    });
  }

  close() {
    clearTimeout(this._redraw);
    clearTimeout(this._retry);
    this._subscription?.unsubscribe();
    this._subscription = null;
  }

  /** Subscribe again now. */
  retry() {
    this.close();
    if (!this.rows.size) this.state.value = "loading";
    this.since.value = now();
    this._position = { epoch: null, sequence: 0 };
    this.open();
  }

  /** @param {boolean} reconnected */
  _connected(reconnected) {
    note("open");
    const { epoch, sequence } = this._position;
    if (reconnected && epoch !== null) this._subscription?.perform("resume", { e: epoch, s: sequence });
  }

  _rejected() {
    note("open");
    this._subscription = null;
    this.state.value = "refused";
    this.since.value = now();
    const pause = Math.min(REFUSED[0] * 2 ** this._refusals, REFUSED[1]);
    this._refusals += 1;
    this.retryAt.value = now() + pause / 1000;
    this._retry = setTimeout(() => this.retry(), pause);
    // A rejection has no reason, and the query API has.
    const clusters = this.params.clusters ?? [this.params.cluster];
    getJson("/api/v1/clusters", { clusters: /** @type {string[]} */ (clusters).join(",") }).then(
      (found) => {
        const one = found.clusters.find((/** @type {any} */ each) => each.state === "denied");
        this.status.value = one ? 403 : 503;
        this.reason.value = one?.reason ?? "kas has too much work for this user at the moment";
      },
      (error) => {
        this.status.value = error.status;
        this.reason.value = error.message;
      },
    );
  }

  /** @param {import("../lib/delta.js").RowsMessage} message */
  _received(message) {
    const { rows, isGap } = applyMessage(this.rows, this._position, message);
    this.rows = rows;
    heard.value = now();
    this._refusals = 0;
    if (isGap) this.retry();
    if (message.snapshot || this.state.peek() !== "live") {
      this.state.value = "live";
      this._draw();
    } else if (!this._redraw) {
      this._redraw = setTimeout(() => this._draw(), Math.max(0, this._drawn + REDRAW - performance.now()));
    }
  }

  _draw() {
    clearTimeout(this._redraw);
    this._redraw = 0;
    this._drawn = performance.now();
    this.version.value += 1;
  }
}

/** @param {boolean} willReconnect */
function lost(willReconnect) {
  note("lost");
  if (willReconnect || isPaused) return;
  // The client library stops after `unauthorized`, and does not say so.  A request tells.
  getJson("/ui/api/agents").then(
    () => setTimeout(() => consumer.connect(), 5000),
    () => {
      if (!signedOut.peek()) setTimeout(() => consumer.connect(), 15_000);
    },
  );
}

// A hidden page needs no rows; a snapshot comes when it is visible again.
let isPaused = false;
let pausing = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(pausing);
  if (document.hidden) {
    pausing = setTimeout(() => {
      isPaused = true;
      consumer.disconnect();
    }, HIDDEN);
  } else if (isPaused) {
    isPaused = false;
    note("connecting");
    consumer.connect();
  }
});

/** @type {Map<string, Feed>} */
const feeds = new Map();

/**
 * Return the feed of a subscription; call `dropFeed` when its rows are not needed any more.
 *
 * @param {{channel: string, [name: string]: unknown}} params
 */
function acquire(params) {
  const key = JSON.stringify(params);
  let feed = feeds.get(key);
  if (!feed) {
    feed = new Feed(key, params);
    feeds.set(key, feed);
    feed.open();
  }
  return feed;
}

/**
 * End the use of a feed; it stays for a while.
 *
 * @param {Feed} feed
 */
export function dropFeed(feed) {
  feed.readers -= 1;
  setTimeout(() => {
    if (feed.readers || feeds.get(feed.key) !== feed) return;
    feeds.delete(feed.key);
    feed.close();
  }, LINGER);
}

/**
 * Follow a subscription while a component is visible.
 *
 * @param {{channel: string, [name: string]: unknown}} params
 * @returns {Feed}
 */
export function useFeed(params) {
  const key = JSON.stringify(params);
  const feed = useMemo(() => acquire(params), [key]);
  useEffect(() => {
    feed.readers += 1;
    return () => dropFeed(feed);
  }, [feed]);
  return feed;
}

/**
 * Follow a subscription until the page is closed.
 *
 * @param {{channel: string, [name: string]: unknown}} params
 */
export function keepFeed(params) {
  const feed = acquire(params);
  feed.readers += 1;
  return feed;
}
