// Asks the external API for a stream, says GOAWAY at its first byte, and reads the rest.
//     node goaway.js URL TOKEN
import http2 from "node:http2";

const [url, token] = process.argv.slice(2);
const session = http2.connect(url);
const stream = session.request({
  ":method": "POST",
  ":path": "/tests.proto.Echo/Spell",
  "content-type": "application/connect+json",
  "authorization": `Bearer ${token}`,
});
const body = Buffer.from(JSON.stringify({ text: "count" }));
const head = Buffer.alloc(5);
head.writeUInt32BE(body.length, 1);
stream.end(Buffer.concat([head, body]));

let received = Buffer.alloc(0);
stream.on("data", (data) => {
  received = Buffer.concat([received, data]);
  // Sends GOAWAY with NO_ERROR and lets what runs finish.
  if (!session.closed) session.close();
});
stream.on("error", (error) => console.log(String(error)));
stream.on("close", () => {
  const seen = [];
  while (received.length) {
    const end = 5 + received.readUInt32BE(1);
    seen.push(JSON.parse(received.subarray(5, end)));
    received = received.subarray(end);
  }
  console.log(JSON.stringify(seen));
});
