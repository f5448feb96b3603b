// What test_action_cable.py runs in a browser: the client of Rails, with a report of
// each of its callbacks to the test, which tells it what to do by the query.

import { createConsumer } from './actioncable.esm.js';

const query = new URLSearchParams(location.search);
// One after the other, so that they arrive in order.
let reported = Promise.resolve();
const report = (what, more = {}) => {
  const body = JSON.stringify({ what, ...more });
  reported = reported.then(
    () => fetch(query.get('report'), { method: 'POST', mode: 'no-cors', body }));
};
const encoded = (text) =>
  btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');

const consumer = createConsumer(query.get('cable'));
if (query.get('how') === 'subprotocol') {
  const token = encoded(query.get('token'));
  consumer.addSubProtocol(`base64url.bearer.authorization.k8s.io.${token}`);
} else {
  consumer.connect();
  consumer.connection.webSocket.addEventListener('open', () =>
    consumer.send({ command: 'authenticate', token: query.get('token') }));
}

const params = { channel: 'TestChannel', agent: query.get('agent'), tab: 'a tab' };
let position = 0;
const mixin = (name) => ({
  connected({ reconnected }) {
    report('connected', { name, reconnected });
    if (reconnected) this.perform('resume', { s: position });
  },
  disconnected({ willAttemptReconnect }) {
    report('disconnected', { name, willAttemptReconnect });
  },
  rejected() { report('rejected', { name }); },
  received(message) {
    position = message.s;
    report('received', { name, message });
  },
});
const first = consumer.subscriptions.create({ ...params }, mixin('first'));

// What the test says, by a message of the channel.
const acts = {
  bump: () => first.perform('bump', { by: 2 }),
  again: () => consumer.subscriptions.create({ ...params }, mixin('second')),
  unsubscribe: () => consumer.subscriptions.subscriptions
    .filter((one) => one !== first).forEach((one) => one.unsubscribe()),
  break: () => consumer.connection.webSocket.close(),
};
first.received = ((received) => (message) => {
  received.call(first, message);
  if (message.act) acts[message.act]();
})(first.received);
