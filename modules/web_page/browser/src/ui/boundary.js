/** A page that fails says so, and the navigation goes on. */

import { now } from "../clock.js";
import { Component, html } from "./html.js";
import { Failed } from "./states.js";

/** @extends {Component<any, {error: unknown, since: number}>} */
export class Boundary extends Component {
  state = { error: /** @type {unknown} */ (null), since: 0 };

  /** @param {unknown} error */
  componentDidCatch(error) {
    this.setState({ error, since: now() });
  }

  /** @param {any} props @param {{error: unknown, since: number}} state */
  render({ children }, { error, since }) {
    if (error === null) return children;
    return html`<${Failed} what="This page" status=${-1} message=${String(error)} since=${since}
      retry=${() => this.setState({ error: null })} />`;
  }
}
