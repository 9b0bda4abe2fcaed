// Mistakes of our own: panics become errors, and nothing else suffers. The addon
// with those mistakes is another build, named by TICKETING_FAULTY_ADDON.

import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

import { packageRoot, run, startServer } from './support.mjs';

const require = createRequire(import.meta.url);
const { platform } = require('../lib/platforms.js');

const faulty = process.env.TICKETING_FAULTY_ADDON;

test('a panic is an error of its call alone', { skip: !faulty && 'no TICKETING_FAULTY_ADDON' }, async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'ticketing-faults-'));
  t.after(() => rm(folder, { recursive: true }));
  for (const file of ['lib', 'index.js', 'package.json']) await cp(path.join(packageRoot, file), path.join(folder, file), { recursive: true });
  await cp(faulty, path.join(folder, `ticketing.${platform()}.node`));
  const { addr } = await startServer(t);
  const { code, signal, text } = await run(t, `
    const { TicketBroker } = require(${JSON.stringify(folder)});
    const { Home } = require(${JSON.stringify(path.join(folder, 'lib', 'home.js'))});
    const native = require(${JSON.stringify(path.join(folder, 'lib', 'native.js'))});
    (async () => {
      const home = new Home({ addresses: [${JSON.stringify(addr)}] });
      const broker = new TicketBroker({ addrs: ${JSON.stringify(addr)} });
      const held = await broker.acquire('k', 30, 60);
      const waiting = broker.acquire('k', 60);
      for (let round = 0; round < 20; round += 1) {
        const there = await home.ask((core) => core.panicThere()).catch((error) => error);
        if (!/panicked/.test(there.message) || there.code) throw there;
        const here = await home.ask((core) => core.panicHere()).catch((error) => error);
        if (!(here instanceof Error)) throw new Error('no error');
      }
      // The same broker goes on, and so does the other one.
      await home.ask((core) => core.waitReady(30));
      await held.release();
      await (await waiting).release();
      console.log('fine');
    })();
  `, { type: 'commonjs' });
  assert.deepEqual([code, signal], [0, null], text);
  const lines = text.split('\n');
  assert.equal(lines.at(-1), 'fine');
  assert.ok(lines.some((line) => line.includes("on the broker's thread")), text);
});
