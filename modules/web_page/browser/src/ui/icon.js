/** Icons, drawn as elements: the page loads no image, and parses no text. */

import arrowDown from "icon:arrow-down";
import arrowUp from "icon:arrow-up";
import ban from "icon:ban";
import bell from "icon:bell";
import boxes from "icon:boxes";
import check from "icon:check";
import chevronDown from "icon:chevron-down";
import circleAlert from "icon:circle-alert";
import circleCheck from "icon:circle-check";
import circleDashed from "icon:circle-dashed";
import circleHelp from "icon:circle-question-mark";
import circleUser from "icon:circle-user-round";
import clock from "icon:clock";
import cloudOff from "icon:cloud-off";
import copy from "icon:copy";
import download from "icon:download";
import externalLink from "icon:external-link";
import layers from "icon:layers";
import list from "icon:list";
import loader from "icon:loader-circle";
import pin from "icon:pin";
import search from "icon:search";
import server from "icon:server";
import table from "icon:table-2";
import triangleAlert from "icon:triangle-alert";
import x from "icon:x";

import { html } from "./html.js";

const ICONS = {
  arrowDown, arrowUp, ban, bell, boxes, check, chevronDown, circleAlert,
  circleCheck, circleDashed, circleHelp, circleUser, clock, cloudOff, copy, download, externalLink, layers, list,
  loader, pin, search, server, table, triangleAlert, x,
};

/** @typedef {keyof typeof ICONS} IconName */

/**
 * An icon.  The text beside it, or the label of its button, says the same.
 *
 * @param {{name: IconName, size?: number, class?: string}} props
 */
export function Icon({ name, size = 16, class: className = "" }) {
  return html`
    <svg class=${`icon ${className}`} width=${size} height=${size} viewBox="0 0 24 24" aria-hidden="true">
      ${ICONS[name].map(([tag, attributes]) => html`<${tag} ...${attributes} />`)}
    </svg>`;
}
