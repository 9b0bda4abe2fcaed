// The packages as they are published, installed in an empty folder elsewhere.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

import { packageRoot, repository, startServer } from './support.mjs';

const require = createRequire(import.meta.url);
const { PREBUILT, platform } = require('../lib/platforms.js');

const ESM = `
  import { TicketBroker, TicketError, TicketTimeout } from 'ticketing';
  import { createRequire } from 'node:module';
  const common = createRequire(import.meta.url)('ticketing');
  const broker = TicketBroker.connect(process.argv[2]);
  const ticket = await broker.acquire('k', 5, 10);
  const error = await broker.tryAcquire('k').catch((error) => error);
  const is = (Kind) => error instanceof Kind;
  console.log([TicketTimeout, TicketError, common.TicketTimeout, common.TicketError].every(is), common.TicketBroker === TicketBroker);
  await ticket.release();
  await broker.close();
`;

const CJS = `
  const { TicketBroker } = require('ticketing');
  (async () => {
    const broker = TicketBroker.connect(process.argv[2]);
    console.log(await broker.withLock('k', { wait: 5 }, (ticket) => typeof ticket.token));
    await broker.close();
  })();
`;

test('packed, installed elsewhere without a compiler, and used from both kinds of modules', { skip: !PREBUILT.includes(platform()) && `no package for ${platform()}` }, async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'ticketing-install-'));
  t.after(() => rm(folder, { recursive: true }));
  const run = (command, args, options) => execFileSync(command, args, { cwd: folder, encoding: 'utf8', ...options });
  run(process.execPath, [path.join(packageRoot, 'scripts', 'pack.mjs'), folder]);
  const archives = (await readdir(folder)).filter((file) => file.endsWith('.tgz'));
  assert.equal(archives.length, 2);

  await writeFile(path.join(folder, 'package.json'), '{ "private": true }');
  // From the two archives alone: nothing may be asked for, and nothing may be built.
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  run(npm, ['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', ...archives.map((file) => `./${file}`)], {
    env: { PATH: path.dirname(process.execPath), HOME: folder },
  });
  const installed = path.join(folder, 'node_modules', 'ticketing');
  assert.deepEqual((await readdir(installed)).sort(), ['LICENSE', 'README.md', 'index.d.mts', 'index.d.ts', 'index.js', 'index.mjs', 'lib', 'package.json']);

  const { addr } = await startServer(t);
  await writeFile(path.join(folder, 'esm.mjs'), ESM);
  await writeFile(path.join(folder, 'common.cjs'), CJS);
  assert.equal(run(process.execPath, ['esm.mjs', addr]), 'true true\n');
  assert.equal(run(process.execPath, ['common.cjs', addr]), 'bigint\n');

  // Without the package of the platform, what is missing is said.
  await rm(path.join(folder, 'node_modules', `ticketing-${platform()}`), { recursive: true });
  const said = run(process.execPath, ['-e', "try { require('ticketing') } catch (error) { console.log(error.message) }"]);
  assert.match(said, new RegExp(`ticketing-${platform()}.*optional`));
});

test('every package has the version of the workspace, and every platform that is named a package', () => {
  const [, version] = readFileSync(path.join(repository, 'Cargo.toml'), 'utf8').match(/^\[workspace\.package\]\nversion = "(.*)"$/m);
  for (const folder of ['.', ...PREBUILT.map((name) => `npm/${name}`)]) {
    assert.equal(require(`../${folder}/package.json`).version, version, folder);
  }
  const lock = require('../package-lock.json');
  assert.equal(lock.packages[''].version, version);
  for (const name of PREBUILT) {
    const { name: published, main, files, os, cpu } = require(`../npm/${name}/package.json`);
    assert.deepEqual([published, main, files], [`ticketing-${name}`, `ticketing.${name}.node`, [main]]);
    assert.ok(name.startsWith(`${os[0]}-${cpu[0]}`));
  }
  assert.ok(existsSync(path.join(repository, 'docs', 'node.md')));
});
