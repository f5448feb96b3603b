// What test_clients.py runs with the client library for JavaScript:
// node client.js NAMESPACE PORT, with $KUBECONFIG.  Prints what came back as JSON.

import net from 'node:net';
import { PassThrough, Writable } from 'node:stream';
import * as k8s from '@kubernetes/client-node';

const [namespace, port] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const found = {};

function collector() {
  const chunks = [];
  const stream = new Writable({
    write(chunk, _encoding, done) { chunks.push(chunk); done(); },
  });
  stream.text = () => Buffer.concat(chunks).toString();
  return stream;
}

async function list() {
  const maps = await core.listNamespacedConfigMap({ namespace });
  found.list = maps.items.map((one) => one.metadata.name).sort();
}

async function watch() {
  const events = [];
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const name = 'from-javascript';
  const fieldSelector = `metadata.name=${name}`;
  let ended;
  const over = new Promise((resolve) => { ended = resolve; });
  let seen;
  const deleted = new Promise((resolve) => { seen = resolve; });
  const request = await new k8s.Watch(config).watch(
    path,
    { fieldSelector },
    (type) => { events.push(type); if (type === 'DELETED') seen(); },
    ended,
  );
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name } } });
  await core.deleteNamespacedConfigMap({ namespace, name });
  await deleted;
  request.abort();
  await over;
  found.watch = events;
}

async function exec() {
  const [out, err, input] = [collector(), collector(), new PassThrough()];
  const command = ['sh', '-c', 'read line; echo "got $line"; echo bad >&2; exit 7'];
  const status = await new Promise((resolve, reject) => {
    new k8s.Exec(config)
      .exec(namespace, 'main', 'echo', command, out, err, input, false, resolve)
      .catch(reject);
    input.write('hello\n');
  });
  found.exec = [out.text(), err.text(), status.details.causes[0].message];
}

async function portForward() {
  const forward = new k8s.PortForward(config);
  const server = net.createServer((socket) => {
    forward.portForward(namespace, 'main', [Number(port)], socket, null, socket);
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  found.forward = await new Promise((resolve, reject) => {
    const client = net.connect(server.address().port, '127.0.0.1');
    let heard = 0;
    client.on('error', reject);
    client.on('data', (data) => {
      heard += data.length;
      if (heard >= 100000) { client.destroy(); resolve(heard); }
    });
    client.write('x'.repeat(100000));
  });
  server.close();
}

async function logs() {
  const out = new PassThrough();
  const abort = await new k8s.Log(config).log(
    namespace, 'main', 'tick', out, { follow: true, tailLines: 1 },
  );
  let text = '';
  for await (const chunk of out) {
    text += chunk;
    if (text.split('\n').length > 3) break;
  }
  abort.abort();
  found.logs = text.split('\n').slice(0, 3).every((line) => line.startsWith('tick'));
}

await list();
await watch();
await exec();
await portForward();
await logs();
console.log(JSON.stringify(found));
process.exit(0);
