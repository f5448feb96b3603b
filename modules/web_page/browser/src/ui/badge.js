/** States as an icon and a word; colour alone never carries the meaning. */

import { levelOfObject } from "../lib/health.js";
import { html } from "./html.js";
import { Icon } from "./icon.js";

/** @type {Record<string, {icon: import("./icon.js").IconName, level: string}>} */
const CLUSTER_STATES = {
  live: { icon: "circleCheck", level: "ok" },
  late: { icon: "clock", level: "progress" },
  offline: { icon: "cloudOff", level: "off" },
  never: { icon: "circleDashed", level: "off" },
  denied: { icon: "ban", level: "off" },
};

/** @type {Record<string, import("./icon.js").IconName>} */
const LEVELS = { ok: "circleCheck", progress: "loader", bad: "circleAlert" };

/** @param {{state: string}} props of a cluster */
export function ClusterBadge({ state }) {
  const { icon, level } = CLUSTER_STATES[state] ?? { icon: "circleHelp", level: "off" };
  return html`<span class=${`badge badge--${level}`}>${Icon({ name: icon })}${state}</span>`;
}

/**
 * @param {{state: string, health?: string}} props of an object: the word, and the health that decides the level
 */
export function StateBadge({ state, health }) {
  const level = levelOfObject({ health, state });
  return html`<span class=${`badge badge--${level}`}>${Icon({ name: LEVELS[level] })}<span>${state || health}</span></span>`;
}
