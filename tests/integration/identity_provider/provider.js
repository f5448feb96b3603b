// An identity provider with two clients, where every user may sign in: a public one for
// kasctl, and a confidential one for the page at a port, if that is named.
// Usage: node provider.js PORT [PORT-OF-THE-PAGE]
// What it granted is on standard output; a process has keys and tokens of its own.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";

import Provider from "oidc-provider";

const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const key = { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig" };

const page = `http://127.0.0.1:${process.argv[3]}/sign-in-test`;
const ofThePage = {
  client_id: "page",
  client_secret: "a secret of the page's client",
  token_endpoint_auth_method: "client_secret_basic",
  redirect_uris: [`${page}/callback`],
  post_logout_redirect_uris: [`${page}/bye`],
  backchannel_logout_uri: `${page}/logged-out`,
  backchannel_logout_session_required: true,
  response_types: ["code"],
  grant_types: ["authorization_code", "refresh_token"],
};

const server = createServer();
server.listen(Number(process.argv[2]), "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "kubernetes",
        application_type: "native",
        token_endpoint_auth_method: "none",
        redirect_uris: ["http://127.0.0.1/callback"],
        response_types: ["code"],
        grant_types: [
          "authorization_code",
          "refresh_token",
          "urn:ietf:params:oauth:grant-type:device_code",
        ],
      },
      ...(process.argv[3] ? [ofThePage] : []),
    ],
    jwks: { keys: [key] },
    cookies: { keys: ["of the tests"] },
    claims: { openid: ["sub"], groups: ["groups"] },
    // Claims of a scope stand in ID tokens, and not behind the userinfo endpoint only.
    conformIdTokenClaims: false,
    // For the confidential client, too.
    rotateRefreshToken: true,
    features: { backchannelLogout: { enabled: true }, deviceFlow: { enabled: true } },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, groups: ["dev"] }),
    }),
  });
  provider.on("grant.success", (ctx) => {
    console.log(`granted ${ctx.oidc.params.grant_type}`);
  });
  server.on("request", provider.callback());
  console.log(`listening at ${issuer}.`);
});
