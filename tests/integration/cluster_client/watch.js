// What test_clients.py runs with GitLab's client library, bundled by esbuild:
// node bundle.cjs NAMESPACE SERVER TOKEN.  Prints what came as JSON.

import { Configuration, CoreV1Api, EventType, WebSocketWatchManager } from '@gitlab/cluster-client';
import WebSocket from 'ws';

globalThis.WebSocket = WebSocket;

async function main() {
  const [namespace, server, token] = process.argv.slice(2);
  const configuration = new Configuration({
    basePath: server,
    headers: { Authorization: `Bearer ${token}` },
  });
  const manager = new WebSocketWatchManager(configuration);
  const core = new CoreV1Api(configuration);
  const found = { names: [], errors: [] };

  function until(watchId, holds) {
    return new Promise((resolve) => {
      manager.on(EventType.DATA, watchId, (data) => { if (holds(data)) resolve(data); });
    });
  }

  manager.on(EventType.ERROR, 'denied', (error) => found.errors.push(error.message));
  const name = 'of-gitlab';
  const names = (data) => data.map((one) => one.metadata.name);
  const there = until('maps', (data) => names(data).includes(name));
  const gone = until('maps', (data) => found.seen && !names(data).includes(name));
  const changed = until('maps', (data) => data.some((one) => one.data && one.data.k === 'v'));
  await manager.initConnection({
    message: { watchId: 'maps', watchParams: { version: 'v1', resource: 'configmaps', namespace } },
  });
  await manager.initConnection({
    message: { watchId: 'pods', watchParams: { version: 'v1', resource: 'pods', namespace, labelSelector: 'app=none' } },
  });
  await manager.initConnection({
    message: { watchId: 'denied', watchParams: { version: 'v1', resource: 'nothings', namespace } },
  });
  const url = `${server}/api/v1/namespaces/${namespace}/configmaps`;
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
  await fetch(url, { method: 'POST', headers, body: JSON.stringify({ metadata: { name } }) });
  found.names = names(await there).sort();
  found.seen = true;
  await fetch(`${url}/${name}`, {
    method: 'PATCH',
    headers: { ...headers, 'Content-Type': 'application/merge-patch+json' },
    body: JSON.stringify({ data: { k: 'v' } }),
  });
  await changed;
  await fetch(`${url}/${name}`, { method: 'DELETE', headers });
  found.left = names(await gone).sort();
  while (!found.errors.length) await new Promise((resolve) => setImmediate(resolve));
  console.log(JSON.stringify(found));
  process.exit(0);
}

main().catch((error) => { console.error(error); process.exit(1); });
