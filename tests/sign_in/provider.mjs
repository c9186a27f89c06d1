// A real OpenID Connect provider for tests: npm's oidc-provider, with its own pages for sign-in and consent.
// Any password is accepted; the name that is entered is the subject, and `accounts` has the groups of each.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const config = JSON.parse(process.argv[2]);
const installed = createRequire(`${config.modules}/package.json`);
const { default: Provider } = await import(pathToFileURL(installed.resolve("oidc-provider")).href);

let ahead = 0;
const now = Date.now;
Date.now = () => now() + ahead;

const provider = new Provider(config.issuer, {
  clients: config.clients,
  jwks: config.jwks,
  claims: { openid: ["sub"], profile: ["name", "groups"], email: ["email"] },
  conformIdTokenClaims: config.userinfo,
  cookies: { keys: ["a key of a test"] },
  features: {
    deviceFlow: { enabled: true },
    revocation: { enabled: true },
    rpInitiatedLogout: { enabled: true },
  },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  ttl: { AuthorizationCode: 60, IdToken: config.idTokenS, AccessToken: 3600, DeviceCode: 600, RefreshToken: 86400, Session: 86400, Grant: 86400, Interaction: 3600 },
  findAccount: (ctx, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: id, email: `${id}@example.org`, groups: config.accounts[id] }),
  }),
});

const handle = provider.callback();
const server = createServer((request, response) => {
  const control = new URL(request.url, config.issuer);
  if (control.pathname !== "/control/clock") return handle(request, response);
  ahead = Number(control.searchParams.get("ahead_s")) * 1000;
  return response.end("ok");
});
server.listen(Number(new URL(config.issuer).port), "127.0.0.1", () => console.log("listening"));
