// The whole table of scenarios. `CONFORMANCE_ONLY=text` plays only the cases with
// that text in their name.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';

import { TicketBroker, TicketError } from '../index.mjs';
import { binary, built, repository } from './support.mjs';

const SERVER = binary('ticketing-scripted-server');
const TABLE = path.join(repository, 'tests', 'conformance', 'scenarios');

/** Cases that run at the same time. Most of their time is spent waiting. */
const AT_ONCE = 32;

/** What the calls of one case leave behind. */
class Session {
  brokers = new Map();
  acquires = new Map();
  tickets = new Map();
  errors = new Map();

  /** Does what a line says; the outcome as fields. */
  async call(call) {
    switch (call.call) {
      case 'broker':
        this.brokers.set(call.broker, new TicketBroker(options(call)));
        return { kind: 'done' };
      case 'acquire':
      case 'try_acquire':
        return this.acquire(call);
      case 'cancel':
        this.acquires.get(call.of)?.cancel();
        return { kind: 'done' };
      case 'place':
        return { kind: 'place', ...(await this.acquires.get(call.of).place()) };
      case 'release':
        await this.tickets.get(call.of).release();
        return { kind: 'released' };
      case 'release_token':
        if (call.key_hex !== undefined) return { kind: 'inexpressible' };
        await this.brokers.get(call.broker).release(call.key, BigInt(call.token));
        return { kind: 'released' };
      case 'drop':
        this.tickets.get(call.of)?.[Symbol.dispose]();
        return { kind: 'done' };
      case 'detach':
        this.tickets.get(call.of).detach();
        return { kind: 'done' };
      case 'remaining':
        return { kind: 'remaining', remaining_ms: this.tickets.get(call.of).remaining() * 1000 };
      case 'verify': {
        const ticket = await this.errors.get(call.of).verify(Number(call.timeout));
        return ticket ? this.keep(call, ticket) : { kind: 'not_acquired' };
      }
      case 'wait_ready':
        await this.brokers.get(call.broker).waitReady(Number(call.timeout));
        return { kind: 'ready' };
      case 'connections':
        return { kind: 'connections', connections: this.brokers.get(call.broker).connections().map(seen) };
      case 'close':
        await this.brokers.get(call.broker).close();
        return { kind: 'done' };
      default:
        throw new Error(`an unknown call: ${call.call}`);
    }
  }

  async acquire(call) {
    // A string of JavaScript has no bytes.
    if (call.key_hex !== undefined) return { kind: 'inexpressible' };
    const broker = this.brokers.get(call.broker);
    const [wait, lease, minRemaining] = [call.wait, call.lease, call.min_remaining].map(seconds);
    const acquire =
      call.call === 'acquire'
        ? broker.acquire(call.key, { wait, lease, minRemaining })
        : broker.tryAcquire(call.key, lease);
    this.acquires.set(call.id, acquire);
    try {
      return this.keep(call, await acquire);
    } catch (error) {
      if (error.name === 'AbortError') return { kind: 'cancelled' };
      this.errors.set(call.id, error);
      throw error;
    }
  }

  keep(call, ticket) {
    this.tickets.set(call.id, ticket);
    const { token, owner, domain } = ticket;
    const remaining_ms = ticket.remaining() * 1000;
    return { kind: 'ticket', token: String(token), owner: String(owner), domain, remaining_ms };
  }

  async close() {
    await Promise.all([...this.brokers.values()].map((broker) => broker.close()));
  }
}

function options({ addresses, token, tls, expect_domain, max_pending }) {
  return {
    addrs: addresses,
    token,
    tls: tls && {
      caFile: tls.ca_file,
      caPem: tls.ca_pem,
      serverName: tls.server_name,
      dangerouslyAcceptAnyCertificate: tls.verify === false,
    },
    expectDomain: expect_domain,
    maxPending: max_pending,
  };
}

function seconds(text) {
  if (text === undefined) return undefined;
  return text === 'inf' ? Infinity : Number(text);
}

function seen({ address, open, extension, leads, node, lastError }) {
  return { address, open, extension, leads, node: node?.toString() ?? null, last_error: lastError };
}

function told(error) {
  if (!(error instanceof TicketError)) throw error;
  const { code, message, owner, token } = error;
  return { kind: code, message, owner: owner?.toString(), token: token?.toString() };
}

/** Plays one case; its verdict. */
async function play(name) {
  const server = spawn(SERVER, ['play', TABLE, name], { stdio: ['pipe', 'pipe', 'inherit'] });
  // After its verdict the server reads no more.
  server.stdin.on('error', () => {});
  const session = new Session();
  let verdict = { end: 'failed', why: 'the scripted server ended without a verdict' };
  for await (const line of createInterface({ input: server.stdout })) {
    const call = JSON.parse(line);
    if (call.end !== undefined) {
      verdict = call;
      break;
    }
    const start = performance.now();
    session
      .call(call)
      .catch(told)
      .then((outcome) => {
        const reply = { id: call.id, elapsed_ms: performance.now() - start, ...outcome };
        server.stdin.write(`${JSON.stringify(reply)}\n`);
      });
  }
  await session.close();
  server.kill();
  return verdict;
}

test('every promise of the table is kept', { timeout: 900_000 }, async () => {
  const only = process.env.CONFORMANCE_ONLY ?? '';
  const list = execFileSync(SERVER, ['list', TABLE], { encoding: 'utf8' });
  const cases = list.split('\n').filter((name) => name !== '' && name.includes(only));
  const results = new Map();
  const queue = cases.values();
  const player = async () => {
    for (const name of queue) results.set(name, await play(name));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, player));

  const folder = path.join(built, '..', 'conformance');
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, 'node.jsonl');
  const lines = cases.map((name) => ({ case: name, end: results.get(name).end, why: results.get(name).why }));
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  console.log(execFileSync(SERVER, ['report', file], { encoding: 'utf8' }));

  const failed = cases.filter((name) => results.get(name).end === 'failed');
  for (const name of failed) {
    const { why, record = [] } = results.get(name);
    console.log([`${name}: ${why}`, ...record].join('\n  '));
  }
  assert.deepEqual(failed, []);
});
