// The types: compiled strictly, and true to what is there.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, mkdir, cp, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

import * as ticketing from '../index.mjs';
import { packageRoot } from './support.mjs';

const require = createRequire(import.meta.url);

test('programs in TypeScript compile, and mistakes do not', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'ticketing-types-'));
  t.after(() => rm(folder, { recursive: true }));
  // As a program has it: the package under its name, its types through its exports.
  await mkdir(path.join(folder, 'node_modules'));
  await symlink(packageRoot, path.join(folder, 'node_modules', 'ticketing'));
  await symlink(path.join(packageRoot, 'node_modules', '@types'), path.join(folder, 'node_modules', '@types'));
  for (const file of ['types.mts', 'types.cts']) await cp(path.join(packageRoot, 'test', file), path.join(folder, file));
  const strict = ['--strict', '--noEmit', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess'];
  const tsc = [require.resolve('typescript/bin/tsc'), ...strict, '--module', 'node16', '--target', 'es2022', '--types', 'node'];
  execFileSync(process.execPath, [...tsc, '--lib', 'es2022,esnext.disposable', 'types.mts', 'types.cts'], { cwd: folder, stdio: 'inherit' });
});

test('what the types name is there, and nothing else', () => {
  const declared = [...readFileSync(path.join(packageRoot, 'index.d.ts'), 'utf8').matchAll(/^export class (\w+)/gm)];
  assert.deepEqual(declared.map(([, name]) => name).sort(), Object.keys(ticketing).sort());
  for (const [, name, body] of readFileSync(path.join(packageRoot, 'index.d.ts'), 'utf8').matchAll(/^export class (\w+)[^{]*\{\n([\s\S]*?)\n\}/gm)) {
    const names = [...body.matchAll(/^ {2}(?:static )?(\w+)(?:<T>)?\(/gm)].map(([, method]) => method);
    for (const method of names.filter((method) => method !== 'constructor')) {
      const owner = ticketing[name].prototype[method] ?? ticketing[name][method];
      assert.equal(typeof owner, 'function', `${name}.${method}`);
    }
  }
});
