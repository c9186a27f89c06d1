// A program for @a2a-js/sdk: verifies the public and the extended card of an agent, whole and without a member.
// Arguments: the agent's address, an API key, the address of the server's keys.
import { verifyAgentCardSignature } from '@a2a-js/sdk';

const [agent, key, jwks] = process.argv.slice(2);
const headers = { 'A2A-Version': '1.0', 'X-API-Key': key };
const { keys } = await (await fetch(jwks)).json();
const verify = verifyAgentCardSignature(async (kid) => keys.find((one) => one.kid === kid));

async function holds(card) {
  try {
    await verify(card);
    return true;
  } catch {
    return false;
  }
}

const told = {};
for (const path of ['.well-known/agent-card.json', 'extendedAgentCard']) {
  const card = await (await fetch(`${agent}/${path}`, { headers })).json();
  const { securityRequirements, ...without } = card;
  told[path] = { whole: await holds(card), required: securityRequirements.length, without: await holds(without) };
}
console.log(JSON.stringify(told));
