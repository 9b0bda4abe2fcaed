// When processes, workers and objects end.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';

import { TicketBroker } from '../index.mjs';
import { packageRoot, run, startServer, until } from './support.mjs';

const require = createRequire(import.meta.url);
const index = require.resolve('../index.js');

/** A server, and a program in a process of its own that has a broker there. */
async function program(t, source, options) {
  const { addr } = await startServer(t);
  const head = `
    import { TicketBroker } from './index.mjs';
    const broker = new TicketBroker({ addrs: ${JSON.stringify(addr)} });
  `;
  return { addr, ended: run(t, head + source, options) };
}

async function broker(t, addr) {
  const broker = new TicketBroker({ addrs: addr });
  t.after(() => broker.close());
  await broker.waitReady(60);
  return broker;
}

/** How many wait for `k`, which is held. */
async function waiters(broker) {
  const acquire = broker.acquire('k');
  acquire.catch(() => {});
  const place = await until('a place', async () => {
    const seen = await acquire.place();
    return seen.place > 0 && seen;
  });
  acquire.cancel();
  return place.waiters - 1;
}

test('an idle broker does not keep the process alive', async (t) => {
  const { ended } = await program(t, `
    await broker.waitReady(60);
    const ticket = await broker.acquire('k');
    console.log('idle, holding', ticket.key);
    globalThis.kept = [broker, ticket];
  `);
  assert.deepEqual(await ended, { code: 0, signal: null, text: 'idle, holding k' });
});

test('an acquire that somebody waits for does', async (t) => {
  const { ended } = await program(t, `
    const held = await broker.acquire('k', 30, 1);
    // Nothing else is under way until that lease ends.
    broker.acquire('k').then((ticket) => console.log('granted', ticket.token > held.token));
  `);
  assert.deepEqual(await ended, { code: 0, signal: null, text: 'granted true' });
});

test('a process that exits in the middle of it all just ends', async (t) => {
  for (const end of [
    'process.exit(7)',
    'broker.acquire("k").finally(() => {}); setImmediate(() => process.exit(7))',
    'await held.release().then(() => process.exit(7))',
    'const mine = await broker.acquire("mine"); const next = broker.acquire("mine").then(() => process.exit(7)); await mine.release(); await next',
    'process.exitCode = 7; broker.close()',
  ]) {
    const { ended } = await program(t, `
      const held = await broker.acquire('k');
      for (let count = 0; count < 100; count += 1) broker.acquire('k').catch(() => {});
      ${end};
    `);
    const { code, signal, text } = await ended;
    assert.deepEqual({ code, signal, text }, { code: 7, signal: null, text: '' }, end);
  }
});

test('what a callback throws goes where it always goes', async (t) => {
  const { ended } = await program(t, `
    const thrown = new Promise((resolve) => {
      let count = 0;
      const told = (how) => (error) => {
        console.log(how, error.message);
        if (++count === 2) resolve();
      };
      process.on('uncaughtException', told('uncaught'));
      process.on('unhandledRejection', told('unhandled'));
    });
    broker.acquire('a').then((ticket) => { throw new Error('in then'); });
    broker.acquire('b').then((ticket) => process.nextTick(() => { throw new Error('in a tick'); }));
    await broker.withLock('c', () => { throw new Error('in a section'); }).catch((error) => console.log('caught', error.message));
    await thrown;
    // Nothing of that has harmed anything.
    await (await broker.acquire('c')).release();
    console.log('fine');
    await broker.close();
  `);
  const { code, text } = await ended;
  const lines = text.split('\n');
  assert.equal(code, 0, text);
  assert.equal(lines.pop(), 'fine');
  assert.deepEqual(lines.sort(), ['caught in a section', 'uncaught in a tick', 'unhandled in then']);
});

/** How often a worker is terminated. */
const TERMINATIONS = Number(process.env.TICKETING_TERMINATIONS ?? 500);

test('workers are terminated with acquires under way', { timeout: 900_000 }, async (t) => {
  const { addr } = await startServer(t);
  const main = await broker(t, addr);
  const held = await main.acquire('k', 30, 250);
  const source = `
    const { parentPort } = require('node:worker_threads');
    const { TicketBroker } = require(${JSON.stringify(index)});
    const broker = new TicketBroker({ addrs: ${JSON.stringify(addr)} });
    broker.acquire('k').finally(() => {});
    broker.acquire('k', { signal: AbortSignal.timeout(1) }).catch(() => {});
    broker.acquire('free' + Math.random()).then(() => {});
    broker.waitReady(60).then(() => parentPort.postMessage('ready'));
  `;
  const terminate = async (round) => {
    const worker = new Worker(source, { eval: true });
    const failed = new Promise((_, reject) => worker.once('error', reject));
    // At every moment of its life.
    const moment = round % 2 === 0 ? new Promise((resolve) => worker.once('message', resolve)) : sleep(round % 97);
    await Promise.race([moment, failed]);
    await worker.terminate();
  };
  const rounds = Array.from({ length: TERMINATIONS }, (_, round) => round).values();
  const terminator = async () => {
    for (const round of rounds) await terminate(round);
  };
  await Promise.all([terminator(), terminator(), terminator()]);
  // What they waited for has ended with them.
  await until('nobody waits', async () => (await waiters(main)) === 0);
  await held.release();
});

test('an addon that only workers ever loaded survives them', async (t) => {
  const { addr } = await startServer(t);
  const { code, signal, text } = await run(t, `
    const { Worker } = require('node:worker_threads');
    const source = \`
      const { parentPort } = require('node:worker_threads');
      const { TicketBroker } = require(${JSON.stringify(index)});
      const broker = new TicketBroker({ addrs: ${JSON.stringify(addr)} });
      broker.acquire('k').then(() => parentPort.postMessage('held'));
      for (let count = 0; count < 10; count += 1) broker.acquire('other').then((ticket) => ticket.release());
    \`;
    (async () => {
      for (let round = 0; round < 20; round += 1) {
        const worker = new Worker(source, { eval: true });
        // The tickets of the last one were given back, or this would take 60 s.
        await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
        await worker.terminate();
      }
      console.log('through');
    })();
  `, { type: 'commonjs' });
  assert.deepEqual({ code, signal, text }, { code: 0, signal: null, text: 'through' });
});

test('a worker ends by itself when nothing is under way', async (t) => {
  const { addr } = await startServer(t);
  const worker = new Worker(
    `const { TicketBroker } = require(${JSON.stringify(index)});
     const broker = new TicketBroker({ addrs: ${JSON.stringify(addr)} });
     broker.acquire('k').then((ticket) => ticket.release());`,
    { eval: true },
  );
  assert.equal(await new Promise((resolve, reject) => worker.once('exit', resolve).once('error', reject)), 0);
});

test('it can be loaded again and again', async (t) => {
  const { addr } = await startServer(t);
  const seen = new Set();
  for (let round = 0; round < 30; round += 1) {
    for (const file of Object.keys(require.cache)) {
      if (file.startsWith(packageRoot)) delete require.cache[file];
    }
    const again = require('../index.js');
    assert.ok(!seen.has(again.TicketBroker));
    seen.add(again.TicketBroker);
    const broker = new again.TicketBroker({ addrs: addr });
    await (await broker.acquire('k')).release();
    // Some are left as they are.
    if (round % 2 === 0) await broker.close();
  }
});

test('a ticket that is collected is given back, and so is a broker that was forgotten', async (t) => {
  const { ended } = await program(t, `
    import { createRequire } from 'node:module';
    const { Home } = createRequire(${JSON.stringify(index)})('./lib/home.js');
    await broker.acquire('k', 30, 250);
    while (true) {
      gc();
      const ticket = await broker.tryAcquire('k').catch(() => undefined);
      if (ticket) break;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    console.log('given back');

    // With a cycle through it, and never closed.
    const addr = broker.connections()[0].address;
    const forget = async () => {
      const forgotten = new TicketBroker({ addrs: addr });
      forgotten.myself = { forgotten };
      await forgotten.acquire('other', 30, 250);
      // What is behind a broker, and what the addon could hold.
      const home = new Home({ addresses: [addr] });
      await home.ask((core) => core.waitReady(30));
      return [new WeakRef(forgotten), new WeakRef(home)];
    };
    const gone = await forget();
    do {
      // A reference that was looked at holds until the next turn.
      await new Promise((resolve) => setTimeout(resolve, 10));
      gc();
    } while (gone.some((reference) => reference.deref()));
    await (await broker.acquire('other', 30)).release();
    console.log('gone');
    await broker.close();
  `, { args: ['--expose-gc'] });
  const { code, text } = await ended;
  assert.deepEqual({ code, text }, { code: 0, text: 'given back\ngone' });
});

test('a broker with an acquire under way is not collected', async (t) => {
  const { ended } = await program(t, `
    const held = await broker.acquire('k', 30, 2);
    const waiting = new TicketBroker({ addrs: broker.connections()[0].address }).acquire('k');
    const collect = setInterval(gc, 10);
    const ticket = await waiting;
    clearInterval(collect);
    console.log(ticket.token > held.token);
  `, { args: ['--expose-gc'] });
  const { code, text } = await ended;
  assert.deepEqual({ code, text }, { code: 0, text: 'true' });
});
