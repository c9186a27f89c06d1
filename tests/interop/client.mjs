// A program for @a2a-js/sdk: talks to our agents with the client's defaults and prints what it got, as JSON.
// Arguments: the server's address, the binding, the version of A2A, an API key.
import { randomUUID } from 'node:crypto';
import { Role, TaskState, verifyAgentCardSignature } from '@a2a-js/sdk';
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from '@a2a-js/sdk/client';

const [server, binding, version, key] = process.argv.slice(2);
const PATIENCE_MS = 40_000;
const legacyCompat = { enabled: version === '0.3' };
const everyByte = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
// Valid base64 by accident: a server that guesses would decode it once too often.
const tempting = Buffer.from('abcdabcd');

// With a slash at its end: without one the client looks for the card beside the agent, not below it.
const address = (agent) => `${server}/agents/${agent}/`;

async function connect(agent, clientConfig) {
  const factory = new ClientFactory(
    ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
      transports: [new JsonRpcTransportFactory({ legacyCompat }), new RestTransportFactory({ legacyCompat })],
      preferredTransports: [binding],
      cardResolver: new DefaultAgentCardResolver({ legacyCompat }),
      clientConfig,
    }),
  );
  if (version === '1.0') return factory.createFromUrl(address(agent));
  // As a server would answer that knows nothing newer.
  const card = await (await fetch(`${address(agent)}.well-known/agent-card.json`)).json();
  delete card.supportedInterfaces;
  return factory.createFromAgentCard(card);
}

const part = (content, more) => ({ content, mediaType: '', filename: '', metadata: undefined, ...more });
const text = (value) => part({ $case: 'text', value });

function ask(parts, taskId = '') {
  const message = {
    messageId: randomUUID(), role: Role.ROLE_USER, parts, taskId, contextId: '', extensions: [], referenceTaskIds: [],
  };
  return { tenant: '', message, configuration: undefined, metadata: undefined };
}

const texts = (parts) => parts.map((one) => one.content.value).join('');
const state = (status) => TaskState[status.state];

async function all(stream) {
  const found = [];
  for await (const event of stream) found.push(event.payload);
  return found;
}

async function begun(client) {
  for await (const event of client.sendMessageStream(ask([text('go')]))) return event.payload.value.id;
}

async function refused(call) {
  try {
    await call();
    return null;
  } catch (error) {
    return error.name;
  }
}

const scenarios = {
  async send() {
    const client = await connect('echo');
    const task = await client.sendMessage(ask([text('hello')]));
    return { version: client.protocolVersion, state: state(task.status), text: texts(task.artifacts[0].parts) };
  },

  async stream() {
    const events = await all((await connect('writer')).sendMessageStream(ask([text('begin')])));
    const chunks = events.filter((event) => event.$case === 'artifactUpdate').map((event) => event.value);
    return {
      first: events[0].$case,
      others: [...new Set(events.slice(1).map((event) => event.$case))].sort(),
      text: chunks.map((chunk) => texts(chunk.artifact.parts)).join(''),
    };
  },

  async question() {
    const client = await connect('writer');
    const asked = await client.sendMessage(ask([text('begin')]));
    const answered = await client.sendMessage(ask([text('Ada')], asked.id));
    const found = await client.getTask({ tenant: '', id: asked.id });
    return {
      asked: state(asked.status),
      question: texts(asked.status.message.parts),
      answered: state(answered.status),
      data: found.artifacts[1].parts[0].content.value,
      contexts: new Set([asked.contextId, answered.contextId, ...found.history.map((one) => one.contextId)]).size,
    };
  },

  async message() {
    const client = await connect('greeter');
    const reply = await client.sendMessage(ask([text('Ada')]));
    const [streamed] = await all(client.sendMessageStream(ask([text('Ada')])));
    return { text: texts(reply.parts), streamed: streamed.$case, again: texts(streamed.value.parts) };
  },

  async polling() {
    const client = await connect('sleeper', { polling: true });
    return { state: state((await client.sendMessage(ask([text('zzz')]))).status) };
  },

  async cancel() {
    const client = await connect('sleeper');
    const id = await begun(client);
    const subscription = client.resubscribeTask({ tenant: '', id });
    const first = (await subscription.next()).value.payload;
    const canceled = await client.cancelTask({ tenant: '', id, metadata: undefined });
    const rest = await all(subscription);
    return { first: first.$case, canceled: state(canceled.status), seen: state(rest.at(-1).value.status) };
  },

  async silence() {
    const events = await all((await connect('quiet')).sendMessageStream(ask([text('hush')])));
    return { text: texts(events.at(-1).value.status.message.parts) };
  },

  async files() {
    const client = await connect('file');
    const same = [];
    for (const bytes of [everyByte, tempting]) {
      const sent = part({ $case: 'raw', value: bytes }, { mediaType: 'application/octet-stream' });
      const task = await client.sendMessage(ask([sent]));
      same.push(Buffer.from(task.artifacts[0].parts[0].content.value).equals(bytes));
    }
    return { same };
  },

  async push() {
    const client = await connect('sleeper');
    const taskId = await begun(client);
    const url = 'http://127.0.0.1:9/hook';
    const authentication = { scheme: 'Bearer', credentials: 'secret' };
    await client.createTaskPushNotificationConfig({ tenant: '', taskId, id: 'mine', url, token: 't', authentication });
    const which = { tenant: '', taskId, id: 'mine' };
    const found = await client.getTaskPushNotificationConfig(which);
    const listed = await client.listTaskPushNotificationConfig({ tenant: '', taskId, pageSize: 0, pageToken: '' });
    await client.deleteTaskPushNotificationConfig(which);
    return {
      found: { id: found.id, url: found.url, token: found.token, authentication: found.authentication },
      listed: listed.configs.length,
      after: await refused(() => client.getTaskPushNotificationConfig(which)),
    };
  },

  async list() {
    const client = await connect('picky');
    const task = await client.sendMessage(ask([text('please')]));
    const page = await client.listTasks({ tenant: '', contextId: task.contextId, status: 0, pageToken: '' });
    return { states: page.tasks.map((one) => state(one.status)), total: page.totalSize };
  },

  async extended() {
    const card = await (await connect('member')).getAgentCard({ serviceParameters: { 'X-API-Key': key } });
    const without = await refused(async () => (await connect('member')).getAgentCard());
    return { skills: card.skills.map((skill) => skill.id), without };
  },

  async signature() {
    const { keys } = await (await fetch(`${server}/.well-known/jwks.json`)).json();
    const verify = verifyAgentCardSignature(async (kid) => keys.find((key) => key.kid === kid));
    // The document as it came: the verifier loses the security schemes of a card that the resolver has read.
    const card = await (await fetch(`${address('member')}.well-known/agent-card.json`)).json();
    await verify(card);
    return { forged: (await refused(() => verify({ ...card, description: 'Another one.' }))) !== null };
  },

  async errors() {
    const client = await connect('echo');
    const unknown = { tenant: '', id: randomUUID() };
    const { id } = await client.sendMessage(ask([text('hello')]));
    return {
      unknown: await refused(() => client.getTask(unknown)),
      ended: await refused(() => client.cancelTask({ tenant: '', id, metadata: undefined })),
      late: await refused(() => client.sendMessage(ask([text('once more')], id))),
    };
  },
};

// So that the one that does not end is known by its name.
const impatient = () => new Promise((_, reject) => setTimeout(reject, PATIENCE_MS, new Error('did not end')).unref());

const told = {};
await Promise.all(
  Object.entries(scenarios).map(async ([name, scenario]) => {
    const ended = Promise.race([scenario(), impatient()]);
    told[name] = await ended.catch((error) => ({ raised: `${error.name}: ${error.message}` }));
  }),
);
console.log(JSON.stringify(told));
// A stream that did not end would keep the program.
process.exit();
