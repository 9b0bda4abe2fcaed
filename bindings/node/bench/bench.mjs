// The workloads of `ticketing bench`, from JavaScript; prints what
// `ticketing bench --json` prints.
//
//   node bench/bench.mjs ADDR[,ADDR…] [contended|own-key|sequential] [--tasks N] [--keys N] [--cycles N]

import { setImmediate as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { TicketBroker } from '../index.mjs';

const WAIT = 30;
const LEASE = 60;

/** In one of so many visits of a key, others get to run between reading and writing. */
const VISITS_A_PAUSE = 16;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { tasks: { type: 'string' }, keys: { type: 'string' }, cycles: { type: 'string' } },
});
const [addrs, workload = 'contended'] = positionals;
const defaults = {
  contended: { tasks: 64, keys: 32, cycles: 40_000 },
  'own-key': { tasks: 64, keys: Number(values.tasks ?? 64), cycles: 40_000 },
  sequential: { tasks: 1, keys: 1, cycles: 5_000 },
}[workload];
if (addrs === undefined || defaults === undefined) {
  console.error('usage: node bench/bench.mjs ADDR[,ADDR…] [contended|own-key|sequential] [--tasks N] [--keys N] [--cycles N]');
  process.exit(2);
}
const plan = { ...defaults };
for (const [name, value] of Object.entries(values)) plan[name] = Number(value);

const broker = new TicketBroker({ addrs: addrs.split(',') });
await broker.waitReady(10);
// Two runs at once shall not wait for each other.
const names = Array.from({ length: plan.keys }, (_, key) => `bench:${process.pid}:${key}`);
const counters = new Array(plan.keys).fill(0);
const times = new Float64Array(plan.cycles);
let [taken, done, errors, firstError] = [0, 0, 0, null];

async function cycle(number) {
  // Cycles under way at one time are neighbours, so they spread over all keys evenly.
  const key = number % plan.keys;
  const ticket = await broker.acquire(names[key], WAIT, LEASE);
  const seen = counters[key];
  if (Math.floor(number / plan.keys) % VISITS_A_PAUSE === 0) await pause();
  counters[key] = seen + 1;
  await ticket.release();
}

async function task() {
  while (taken < plan.cycles && firstError === null) {
    const number = taken;
    taken += 1;
    const start = performance.now();
    try {
      await cycle(number);
    } catch (error) {
      errors += 1;
      firstError ??= error;
      return;
    }
    times[done] = performance.now() - start;
    done += 1;
  }
}

const start = performance.now();
await Promise.all(Array.from({ length: plan.tasks }, task));
const secs = (performance.now() - start) / 1000;
await broker.close();

const sorted = times.subarray(0, done).sort();
const micros = (quantile) => Math.round(sorted[Math.min(done - 1, Math.floor(done * quantile))] * 10_000) / 10;
const counted = counters.reduce((sum, count) => sum + count, 0);
const violations = Math.max(0, done - counted);
console.log(
  JSON.stringify({
    workload,
    tasks: plan.tasks,
    keys: plan.keys,
    cycles: done,
    secs,
    cycles_per_sec: done / secs,
    p50_us: micros(0.5),
    p99_us: micros(0.99),
    max_us: micros(1),
    errors,
    error: firstError && String(firstError),
    violations,
  }),
);
process.exitCode = violations > 0 || errors > 0 ? 1 : 0;
