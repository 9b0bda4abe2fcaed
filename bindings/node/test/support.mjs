// What the tests share: real servers, and waiting for conditions.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

/** Generous: other work may fill the machine. */
const PATIENCE_MS = 60_000;

export const packageRoot = fileURLToPath(new URL('..', import.meta.url));
export const repository = path.join(packageRoot, '..', '..');

/** Where cargo put what it built. */
export const built = process.env.TICKETING_BUILT ?? path.join(repository, 'target', 'debug');

export function binary(name) {
  return path.join(built, process.platform === 'win32' ? `${name}.exe` : name);
}

/** Waits until `condition` gives something true, and returns that. */
export async function until(what, condition) {
  const deadline = performance.now() + PATIENCE_MS;
  for (;;) {
    const seen = await condition();
    if (seen) return seen;
    assert.ok(performance.now() < deadline, `never came: ${what}`);
    await sleep(10);
  }
}

/** A child process that ends with the test, and whose lines can be waited for. */
export class Process {
  constructor(t, command, args, options = {}) {
    this.child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    this.lines = [];
    for (const stream of [this.child.stdout, this.child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => this.lines.push(line));
    }
    this.ended = new Promise((resolve, reject) => {
      this.child.on('error', reject);
      this.child.on('close', (code, signal) => resolve({ code, signal, text: this.lines.join('\n') }));
    });
    t.after(() => this.stop());
  }

  async line(pattern) {
    return until(`${pattern} from ${this.child.spawnfile}:\n${this.lines.join('\n')}`, () => {
      const match = this.lines.map((line) => line.match(pattern)).find((match) => match);
      assert.ok(match || this.child.exitCode === null, `it ended:\n${this.lines.join('\n')}`);
      return match;
    });
  }

  async stop(signal = 'SIGKILL') {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill(signal);
    return this.ended;
  }
}

/** A server alone; its address. */
export async function startServer(t, ...args) {
  const server = new Process(t, binary('ticketing-server'), ['--listen', '127.0.0.1:0', ...args]);
  const [, addr] = await server.line(/listening.*?(127\.0\.0\.1:\d+)/);
  return Object.assign(server, { addr });
}

/** A cluster of three; its nodes' addresses and processes. */
export async function startCluster(t) {
  const cluster = new Process(t, binary('ticketing-server'), ['dev', '--nodes', '3']);
  await cluster.line(/Take a lock/);
  const nodes = cluster.lines.flatMap((line) => {
    const match = line.match(/node \w+ +clients (\S+) .*process (\d+)/);
    return match ? [{ addr: match[1], pid: Number(match[2]) }] : [];
  });
  assert.equal(nodes.length, 3);
  // It ends its nodes when it is asked to end, but not when it is killed.
  t.after(() => cluster.stop('SIGTERM'));
  return { nodes, addrs: nodes.map((node) => node.addr) };
}

/** Runs a program of JavaScript in a process of its own, to its end. */
export async function run(t, source, { args = [], env = {}, type = 'module' } = {}) {
  const options = { cwd: packageRoot, env: { ...process.env, ...env } };
  const program = new Process(t, process.execPath, [...args, `--input-type=${type}`, '--eval', source], options);
  const stuck = sleep(PATIENCE_MS, undefined, { ref: false }).then(() => program.stop());
  return Promise.race([program.ended, stuck]);
}

/** The error that a promise is rejected with. */
export async function failure(promise) {
  return promise.then(
    (value) => assert.fail(`it came to ${value}`),
    (error) => error,
  );
}

/** The same of several, all of which are expected to fail. */
export async function failures(promises) {
  return Promise.all(promises.map(failure));
}
