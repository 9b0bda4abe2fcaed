// What a program sees of a broker, with a real server.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

import * as ticketing from '../index.mjs';
import { failure, failures, startServer, until } from './support.mjs';

const {
  TicketBroker,
  Ticket,
  TicketClosed,
  TicketError,
  TicketIndeterminate,
  TicketInvalidInput,
  TicketNotConnected,
  TicketNotHeld,
  TicketTimeout,
} = ticketing;

const require = createRequire(import.meta.url);

/** A broker at a server of its own. */
async function start(t, options = {}) {
  const server = await startServer(t);
  const broker = new TicketBroker({ addrs: server.addr, ...options });
  t.after(() => broker.close());
  await broker.waitReady(60);
  return Object.assign(broker, { server });
}

test('a lock is acquired and released', async (t) => {
  const broker = await start(t);
  const ticket = await broker.acquire('seat:12', { wait: 5, lease: 10 });
  assert.ok(ticket instanceof Ticket);
  assert.equal(ticket.key, 'seat:12');
  assert.equal(typeof ticket.token, 'bigint');
  assert.equal(typeof ticket.owner, 'bigint');
  assert.match(ticket.domain, /^[0-9a-f]{32}$/);
  assert.ok(ticket.remaining() > 0 && ticket.remaining() <= 10);
  await ticket.release();
  assert.equal(ticket.remaining(), 0);

  const next = await broker.acquire('seat:12', 5, 10);
  assert.ok(next.token > ticket.token);
  await next.release();
});

test('both forms of an acquire mean the same, and have the defaults of the core', async (t) => {
  const broker = await start(t);
  for (const args of [[], [{}], [undefined, undefined], [30], [30, 60], [{ wait: 30, lease: 60 }]]) {
    const ticket = await broker.acquire('k', ...args);
    assert.ok(ticket.remaining() > 40 && ticket.remaining() <= 60, `${ticket.remaining()}`);
    await ticket.release();
  }
  const ticket = await broker.tryAcquire('k', 3);
  assert.ok(ticket.remaining() <= 3);
  const again = [broker.tryAcquire('k'), broker.tryAcquire('k', { lease: 3 }), broker.acquire('k', 0)];
  for (const error of await failures(again)) {
    assert.ok(error instanceof TicketTimeout);
    assert.deepEqual([error.code, error.key, typeof error.owner], ['timeout', 'k', 'bigint']);
  }
  await ticket.release();
});

test('a lock excludes, and its queue is first come, first served', async (t) => {
  const broker = await start(t);
  const held = await broker.acquire('k');
  const order = [];
  let inside = 0;
  const turns = [];
  for (let turn = 1; turn <= 50; turn += 1) {
    const acquire = broker.acquire('k');
    const placed = await until(`place ${turn}`, async () => {
      const { place, waiters } = await acquire.place();
      return place > 0 && { place, waiters };
    });
    assert.deepEqual(placed, { place: turn, waiters: turn });
    turns.push(
      acquire.then(async (ticket) => {
        inside += 1;
        assert.equal(inside, 1);
        order.push(turn);
        await sleep(1);
        inside -= 1;
        await ticket.release();
      }),
    );
  }
  await held.release();
  await Promise.all(turns);
  assert.deepEqual(order, Array.from({ length: 50 }, (_, index) => index + 1));
});

test('a counter that loses additions without a lock loses none with it', async (t) => {
  const broker = await start(t);
  let counter = 0;
  const visit = async () => {
    const seen = counter;
    await sleep(0);
    counter = seen + 1;
  };
  await Promise.all(Array.from({ length: 100 }, visit));
  assert.ok(counter < 100);
  counter = 0;
  await Promise.all(Array.from({ length: 100 }, () => broker.withLock('k', visit)));
  assert.equal(counter, 100);
});

test('an aborted acquire rejects with the reason and leaves the queue', async (t) => {
  const broker = await start(t);
  const held = await broker.acquire('k');
  const controller = new AbortController();
  const acquire = broker.acquire('k', { signal: controller.signal });
  await until('it waits', async () => (await acquire.place()).place === 1);
  const reason = new Error('the customer left');
  controller.abort(reason);
  const next = broker.acquire('k');
  assert.equal(await failure(acquire), reason);
  await until('it left', async () => (await next.place()).place === 1);
  assert.equal((await acquire.place()).place, 0);
  next.cancel();
  await failure(next);

  // By default it is what every other function of the platform rejects with.
  const timed = broker.acquire('k', { signal: AbortSignal.timeout(50) });
  assert.equal((await failure(timed)).name, 'TimeoutError');
  const cancelled = broker.acquire('k');
  cancelled.cancel();
  assert.equal((await failure(cancelled)).name, 'AbortError');
  cancelled.cancel();

  await held.release();
  await (await broker.acquire('k', 5)).release();
});

test('what was aborted before it began sends nothing', async (t) => {
  const broker = await start(t);
  const held = await broker.acquire('k');
  const waiting = broker.acquire('k', { signal: AbortSignal.abort() });
  assert.equal((await failure(waiting)).name, 'AbortError');
  assert.equal((await failure(waiting.place())).code, 'invalid_input');
  await held.release();
});

test('a signal that was not aborted forgets the acquire', async (t) => {
  const broker = await start(t);
  const { signal } = new AbortController();
  let listeners = 0;
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...args) => {
    listeners += 1;
    addEventListener.apply(signal, args);
  };
  signal.removeEventListener = (...args) => {
    listeners -= 1;
    removeEventListener.apply(signal, args);
  };
  await (await broker.acquire('k', { signal })).release();
  assert.ok((await failure(broker.acquire('k', { signal, lease: 251 }))) instanceof TicketInvalidInput);
  assert.equal(listeners, 0);
});

test('a grant that meets its cancel is given back', async (t) => {
  const broker = await start(t);
  let granted = 0;
  for (let round = 0; round < 300; round += 1) {
    const held = await broker.acquire('k', 5);
    const acquire = broker.acquire('k', { wait: 60, lease: 60 });
    // The release grants it while the cancel is on its way.
    const releasing = held.release();
    if (round % 3 > 0) await sleep(round % 3 === 1 ? 0 : 1);
    acquire.cancel();
    const ticket = await acquire.catch(() => undefined);
    if (ticket) {
      granted += 1;
      await ticket.release();
    }
    await releasing;
  }
  // Nobody holds it: otherwise this would wait for a lease of 60 s.
  await (await broker.acquire('k', 30)).release();
  t.diagnostic(`${granted} of 300 were granted before their cancel`);
});

test('withLock releases whatever happens inside', async (t) => {
  const broker = await start(t);
  const isFree = async () => (await broker.tryAcquire('k')).release();
  assert.equal(await broker.withLock('k', (ticket) => ticket.key), 'k');
  await isFree();
  assert.equal(await broker.withLock('k', { wait: 1, lease: 5 }, async () => 7), 7);
  await isFree();

  const thrown = new Error('inside');
  for (const section of [
    () => {
      throw thrown;
    },
    async () => {
      await sleep(1);
      throw thrown;
    },
  ]) {
    assert.equal(await failure(broker.withLock('k', section)), thrown);
    await isFree();
  }

  // Released inside: that is the section's own business.
  await broker.withLock('k', (ticket) => ticket.release());
  await isFree();

  // The lease ran out: it may not have been alone.
  const late = failure(broker.withLock('k', { lease: 1 }, () => sleep(1500)));
  assert.ok((await late) instanceof TicketNotHeld);
  assert.ok((await failure(broker.withLock('k'))) instanceof TypeError);
});

test('a ticket can be disposed of, and is released at most once', async (t) => {
  const broker = await start(t);
  const ticket = await broker.acquire('k');
  await ticket[Symbol.asyncDispose]();
  await ticket[Symbol.asyncDispose]();
  const error = await failure(ticket.release());
  assert.ok(error instanceof TicketNotHeld);
  assert.deepEqual([error.key, error.token, error.owner], ['k', ticket.token, ticket.owner]);
  assert.throws(() => ticket.detach(), TicketNotHeld);

  const second = await broker.acquire('k', 5);
  second[Symbol.dispose]();
  second[Symbol.dispose]();
  await (await broker.acquire('k', 5)).release();

  const third = await broker.acquire('k', 5);
  const outcomes = await Promise.allSettled([third.release(), third.release(), third.release()]);
  assert.deepEqual(outcomes.map((outcome) => outcome.status).sort(), ['fulfilled', 'rejected', 'rejected']);
});

test('a detached grant is released by key and token', async (t) => {
  const broker = await start(t);
  const ticket = await broker.acquire('k', 5, 60);
  const grant = ticket.detach();
  assert.deepEqual({ ...grant, remaining: 0 }, { key: 'k', token: ticket.token, owner: ticket.owner, domain: ticket.domain, remaining: 0 });
  assert.ok(grant.remaining > 30);
  const copy = JSON.parse(JSON.stringify(grant));
  assert.deepEqual([copy.token, copy.owner], [String(grant.token), String(grant.owner)]);
  await broker.release(copy.key, BigInt(copy.token));
  const error = await failure(broker.release('k', grant.token));
  assert.ok(error instanceof TicketNotHeld);
  assert.deepEqual([error.key, error.token], ['k', grant.token]);
});

test('tickets, errors and connections survive JSON and inspection', async (t) => {
  const broker = await start(t);
  const ticket = await broker.acquire('k');
  const seen = JSON.parse(JSON.stringify({ ticket }));
  assert.equal(BigInt(seen.ticket.token), ticket.token);
  assert.equal(BigInt(seen.ticket.owner), ticket.owner);
  assert.match(inspect(ticket), /^Ticket \{\s+key: 'k',\s+token: \d+n/);

  const error = await failure(broker.tryAcquire('k'));
  const told = JSON.parse(JSON.stringify(error));
  assert.deepEqual([told.name, told.code, told.key, told.owner], ['TicketTimeout', 'timeout', 'k', String(error.owner)]);
  assert.match(inspect(error), /^TicketTimeout: lock "k"/);

  const connections = JSON.parse(JSON.stringify(broker.connections()));
  assert.equal(connections.length, 2);
  assert.ok(connections.every(({ address }) => address === broker.server.addr));
  assert.doesNotMatch(inspect(new TicketBroker({ addrs: 'a:1', token: 'a secret of 16+ bytes' }), { showHidden: true, depth: 9 }), /secret/);
  await ticket.release();
});

test('numbers of 64 bits are exact or refused', async (t) => {
  const broker = await start(t);
  for (const token of [0n, 2n ** 53n - 1n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n]) {
    const error = await failure(broker.release('k', token));
    assert.deepEqual([error.code, error.token], ['not_held', token]);
  }
  for (const token of [-1n, 2n ** 64n, 2n ** 64n + 7n, 2n ** 128n, -(2n ** 64n) + 7n]) {
    assert.ok((await failure(broker.release('k', token))) instanceof TicketInvalidInput, `${token}`);
  }
  for (const token of [7, '7', null, undefined, 1.5]) {
    assert.ok((await failure(broker.release('k', token))) instanceof TypeError, `${token}`);
  }
  // The addon itself refuses them as well.
  const { Home } = require('../lib/home.js');
  const { core } = new Home({ addresses: ['127.0.0.1:1'] });
  for (const token of [-1n, 2n ** 64n]) assert.equal(core.releaseToken('k', token), null);
});

test('what breaks a rule is refused before anything is sent', async (t) => {
  // Nobody is there: whatever were to be sent would end as something else.
  const broker = new TicketBroker({ addrs: '127.0.0.1:1' });
  t.after(() => broker.close());
  const refused = async (what, ...calls) => {
    for (const error of await failures(calls)) assert.ok(error instanceof TicketInvalidInput, `${what}: ${error}`);
  };
  for (const key of ['', 'k'.repeat(129), 'two words', 'a\nb', '\ud800', 'x\udc00', 'é'.repeat(65)]) {
    const calls = [broker.acquire(key), broker.tryAcquire(key), broker.release(key, 7n), broker.withLock(key, () => {})];
    await refused(JSON.stringify(key), ...calls);
  }
  for (const lease of [0, -0, 250.1, 251, -1, NaN, Infinity, -Infinity, 1e300, Number.MAX_VALUE, 256 + 10]) {
    await refused(lease, broker.acquire('k', 1, lease), broker.acquire('k', { lease }), broker.tryAcquire('k', lease));
  }
  for (const wait of [255.1, 256, -1, NaN, Infinity, 1e300, 2 ** 32, 2 ** 64]) {
    await refused(wait, broker.acquire('k', wait), broker.acquire('k', { wait }));
  }
  for (const minRemaining of [-1, NaN, Infinity, 60.1]) {
    await refused(minRemaining, broker.acquire('k', { minRemaining }));
  }
  for (const timeout of [-1, NaN, Infinity]) {
    await refused(timeout, broker.waitReady(timeout));
  }
});

test('what has the wrong type is a TypeError', async (t) => {
  const broker = new TicketBroker({ addrs: '127.0.0.1:1' });
  t.after(() => broker.close());
  const calls = [
    broker.acquire(),
    broker.acquire(7),
    broker.acquire(null),
    broker.acquire(Buffer.from('k')),
    broker.acquire('k', '5'),
    broker.acquire('k', null),
    broker.acquire('k', 5n),
    broker.acquire('k', 5, '10'),
    broker.acquire('k', true),
    broker.acquire('k', { wait: '5' }),
    broker.acquire('k', { lease: null }),
    broker.acquire('k', { lease: 5 }, 5),
    broker.acquire('k', { leese: 5 }),
    broker.acquire('k', { minRemaining: '1' }),
    broker.acquire('k', { signal: {} }),
    broker.acquire('k', { signal: null }),
    broker.tryAcquire('k', null),
    broker.tryAcquire('k', { wait: 5 }),
    broker.waitReady('5'),
    broker.withLock('k', 5, 5),
  ];
  for (const error of await failures(calls)) assert.ok(error instanceof TypeError, String(error));
  for (const options of [undefined, null, 'a:1', {}, { addrs: 7 }, { addrs: [7] }, { addrs: 'a:1', token: 7 }, { addrs: 'a:1', tls: 'yes' }, { addrs: 'a:1', tls: { ca: 'x' } }, { addrs: 'a:1', tokn: 'x' }, { addrs: 'a:1', maxPending: '1' }]) {
    assert.throws(() => new TicketBroker(options), TypeError, inspect(options));
  }
});

test('settings that make no sense are refused', () => {
  for (const options of [
    { addrs: [] },
    { addrs: '' },
    { addrs: 'a:b:c' },
    { addrs: 'a:99999' },
    { addrs: 'a:1', expectDomain: 'zz' },
    { addrs: 'a:1', maxPending: 0 },
    { addrs: 'a:1', maxPending: 1.5 },
    { addrs: 'a:1', maxPending: -1 },
  ]) {
    assert.throws(() => new TicketBroker(options), TicketInvalidInput, inspect(options));
  }
  for (const tls of [{ caFile: '/there/is/none.pem' }, { caPem: 'no certificate' }]) {
    assert.throws(() => new TicketBroker({ addrs: 'a:1', tls }), ticketing.TicketTlsError);
  }
});

test('connect takes addresses one by one or as a list', async (t) => {
  const server = await startServer(t);
  for (const args of [[server.addr], [server.addr, 'localhost:1'], [[server.addr]], [server.addr, {}], [[server.addr], { tls: false }]]) {
    const broker = TicketBroker.connect(...args);
    await (await broker.acquire('k')).release();
    await broker.close();
  }
});

test('a token is proven', async (t) => {
  const token = 'the secret of this test';
  const server = await startServer(t, '--client-token-file', await secretFile(t, token));
  const broker = new TicketBroker({ addrs: server.addr, token: Buffer.from(token) });
  await (await broker.acquire('k')).release();
  await broker.close();
  const stranger = new TicketBroker({ addrs: server.addr, token: 'another secret of 16+ bytes' });
  const error = await failure(stranger.acquire('k'));
  assert.ok(error instanceof ticketing.TicketAuthError);
  await stranger.close();
});

async function secretFile(t, secret) {
  const { mkdtemp, rm, writeFile } = await import('node:fs/promises');
  const { tmpdir } = await import('node:os');
  const folder = await mkdtemp(`${tmpdir()}/ticketing-node-`);
  t.after(() => rm(folder, { recursive: true }));
  await writeFile(`${folder}/token`, secret, { mode: 0o600 });
  return `${folder}/token`;
}

test('close ends what waits, is idempotent, and lets nothing begin', async (t) => {
  const broker = await start(t);
  const held = await broker.acquire('k', 5, 60);
  const waiting = Array.from({ length: 50 }, () => broker.acquire('k'));
  await until('they wait', async () => (await waiting[0].place()).waiters === 50);
  const ended = failures(waiting);
  const first = broker.close();
  assert.equal(broker.close(), first);
  await first;
  await broker.close();
  for (const error of await ended) {
    assert.ok(error instanceof TicketClosed || error instanceof TicketIndeterminate, String(error));
  }
  assert.ok(held.remaining() > 30, 'a close takes no lock away');
  const late = [broker.acquire('k'), broker.tryAcquire('k'), broker.release('k', 7n), broker.waitReady()];
  for (const error of await failures(late)) assert.ok(error instanceof TicketClosed, String(error));
  assert.ok((await failure(held.release())) instanceof TicketError);
});

test('without a server nothing is acquired, and the cause is told', async (t) => {
  const broker = new TicketBroker({ addrs: '127.0.0.1:1' });
  t.after(() => broker.close());
  const error = await failure(broker.acquire('k', 0));
  assert.ok(error instanceof TicketNotConnected);
  assert.match(error.message, /127\.0\.0\.1:1.*refused/);
});

test('every kind of the core has a class, and both ways to load have the same', async () => {
  const { constants } = require('../lib/native.js');
  const common = require('../index.js');
  const { kinds, version } = constants();
  assert.equal(version, require('../package.json').version);
  const classes = Object.values(ticketing).filter((value) => value.prototype instanceof TicketError);
  assert.deepEqual(classes.map((kind) => kind.code).sort(), [...kinds].sort());
  assert.deepEqual(Object.keys(common).sort(), Object.keys(ticketing).filter((name) => name !== 'default').sort());
  for (const [name, value] of Object.entries(common)) assert.equal(ticketing[name], value, name);
  for (const Kind of classes) {
    const error = new Kind('a text', { key: 'k', owner: 1n, token: 2n });
    assert.ok(error instanceof common[Kind.name] && error instanceof common.TicketError && error instanceof Error);
    assert.deepEqual([error.name, error.key, error.owner, error.token], [Kind.name, 'k', 1n, 2n]);
  }
  assert.ok((await failure(new TicketIndeterminate('made by hand').verify())) instanceof TicketInvalidInput);
});
