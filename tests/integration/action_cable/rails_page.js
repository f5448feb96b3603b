// What test_broadcasts_to_rails.py runs in a browser: the client of Rails, at a Rails
// server, with a report of each of its callbacks to the test.

import { createConsumer } from './actioncable.esm.js';

const query = new URLSearchParams(location.search);
// One after the other, so that they arrive in order.
let reported = Promise.resolve();
const report = (what, more = {}) => {
  const body = JSON.stringify({ what, ...more });
  reported = reported.then(
    () => fetch('/', { method: 'POST', body }));
};

const consumer = createConsumer(query.get('cable'));
const agent = query.get('agent');
consumer.subscriptions.create({ channel: 'AgentChannel', agent }, {
  connected() { report('connected'); },
  rejected() { report('rejected'); },
  received(message) { report('received', { message }); },
});
