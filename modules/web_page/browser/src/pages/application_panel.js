/** The side panel of an application. */

import { safeImage, safeLink } from "../lib/links.js";
import { clusterAddress } from "../route.js";
import { StateBadge } from "../ui/badge.js";
import { CopyButton } from "../ui/copy.js";
import { html } from "../ui/html.js";
import { Icon } from "../ui/icon.js";
import { Panel } from "../ui/panel.js";

/** @param {{row: any}} props */
export function ApplicationPanel({ row }) {
  return html`
    <${Panel} title=${row.name} kind="Application">
      <section class="panel__section">
        ${row.health && html`<div><${StateBadge} state=${row.health} /></div>`}
        <dl class="facts">
          <div><dt>Cluster</dt><dd><a href=${clusterAddress(row.cluster)}>${row.cluster}</a></dd></div>
          <div><dt>Namespace</dt><dd>${row.namespace}</dd></div>
          ${row.version && html`<div><dt>Version</dt><dd>${row.version}</dd></div>`}
          ${row.source && html`<div><dt>Source</dt><dd>${row.source}</dd></div>`}
          ${row.images.map((/** @type {string} */ one) => html`
            <div key=${one}><dt>Image</dt><dd><code>${one}</code><${CopyButton} text=${one} label="image" /></dd></div>`)}
        </dl>
      </section>
      <section class="panel__section"><h3>Workloads</h3>
        ${!row.workloads.length && html`<p class="muted">No workload that you may see belongs to it.</p>`}
        ${row.workloads.map((/** @type {any} */ one) => html`
          <div class="event" key=${`${one.kind}/${one.name}`}>
            <span class="event__line"><a href=${clusterAddress(row.cluster, "workloads", {
    open: [one.kind, row.namespace, one.name].join("/"),
  })}>${one.kind} ${one.name}</a><span>${one.ready}/${one.wanted}</span></span>
            ${one.health !== "current" && html`<p><${StateBadge} state=${one.health} /> ${one.reason}</p>`}
          </div>`)}
      </section>
      ${row.declarations.map((/** @type {any} */ one) => html`
        <${Declaration} key=${`${one.kind}${one.namespace}${one.name}`} one=${one} />`)}
    <//>`;
}

/** @param {{one: any}} props an object that declares the application; its texts are those of users of the cluster */
function Declaration({ one }) {
  const links = Object.entries(one.links ?? {}).map(([link, title]) => [safeLink(link), title]).filter(([link]) => link);
  const icon = safeImage(one.icon);
  const source = [one.repository, one.path].filter(Boolean).join(" ");
  /** @type {[string, any][]} */
  const facts = [
    ["Type", one.type], ["Version", one.version], ["From", source && html`<code>${source}</code>`],
    ["Wanted", one.wanted], ["Applied", one.revision && html`<code>${one.revision}</code>`],
    ["Target", one.target !== one.namespace && one.target], ["Owners", one.owners?.join(", ")],
    ...Object.entries(one.info ?? {}), ...Object.entries(one.references ?? {}),
    ["Not checked", one.unknownComponents?.join(", ")],
  ];
  const stated = Object.entries(one.stated ?? {});
  return html`
    <section class="panel__section">
      <h3>${icon && html`<img class="app-icon" src=${icon} alt="" />`}${one.kind} of ${one.tool}</h3>
      ${one.description && html`<p>${one.description}</p>`}
      ${one.problem && html`<p class="message message--bad">${one.problem}</p>`}
      <dl class="facts">${facts.filter(([, value]) => value).map(([title, value]) => html`
        <div key=${title}><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>
      ${stated.length > 0 && html`
        <div><p class="muted">It says of itself, and kas does not verify:</p>
          <dl class="facts">${stated.map(([key, value]) => html`<div key=${key}><dt>${key}</dt><dd>${value}</dd></div>`)}</dl></div>`}
      ${links.length > 0 && html`
        <div class="links">${links.map(([link, title]) => html`
          <a key=${link} href=${link} target="_blank" rel="noopener noreferrer"><${Icon} name="externalLink" size=${14} />${
    title || link}</a>`)}</div>`}
    </section>`;
}
