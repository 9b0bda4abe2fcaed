// Every example of the documentation is run as it stands, or compiled.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

import { packageRoot, Process, repository, startServer } from './support.mjs';

const require = createRequire(import.meta.url);

const PAGES = ['README.md', 'docs/node.md', 'bindings/node/README.md'];

function examples(page, language) {
  const text = readFileSync(path.join(repository, page), 'utf8');
  const found = text.matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\``, 'gm'));
  return [...found].map(([, source]) => source);
}

/** A folder in which the package is installed. */
async function project(t) {
  const folder = await mkdtemp(path.join(tmpdir(), 'ticketing-docs-'));
  t.after(() => rm(folder, { recursive: true }));
  await mkdir(path.join(folder, 'node_modules'));
  await symlink(packageRoot, path.join(folder, 'node_modules', 'ticketing'));
  await symlink(path.join(packageRoot, 'node_modules', '@types'), path.join(folder, 'node_modules', '@types'));
  return folder;
}

for (const page of PAGES) {
  test(`the examples of ${page} run`, async (t) => {
    const sources = examples(page, 'js');
    assert.ok(sources.length > 0);
    const { addr } = await startServer(t);
    const folder = await project(t);
    for (const [index, source] of sources.entries()) {
      const file = path.join(folder, `example-${index}.mjs`);
      await writeFile(file, source.replaceAll('127.0.0.1:5225', addr));
      const options = { env: { ...process.env, TICKETING_CLIENT_TOKEN: 'a secret of 16+ bytes' } };
      const { code, text } = await new Process(t, process.execPath, [file], options).ended;
      assert.equal(code, 0, `${source}\n${text}`);
      if (source.includes('our turn')) assert.match(text, /our turn, token \d+n/);
      for (const [, comment] of source.matchAll(/^console\.log\(await \w+\.catch.*\/\/ (\w+)$/gm)) assert.ok(text.includes(comment), text);
    }
  });
}

test('the examples in TypeScript compile', async (t) => {
  const folder = await project(t);
  const sources = examples('docs/node.md', 'ts');
  assert.ok(sources.length > 0);
  const files = await Promise.all(
    sources.map(async (source, index) => {
      await writeFile(path.join(folder, `example-${index}.mts`), source);
      return `example-${index}.mts`;
    }),
  );
  const options = ['--strict', '--noEmit', '--module', 'node16', '--target', 'es2022', '--lib', 'es2022,esnext.disposable', '--types', 'node'];
  execFileSync(process.execPath, [require.resolve('typescript/bin/tsc'), ...options, ...files], { cwd: folder, stdio: 'inherit' });
});

test('the documentation names every kind of error', () => {
  const page = readFileSync(path.join(repository, 'docs', 'node.md'), 'utf8');
  const { byCode } = require('../lib/errors.js');
  for (const [code, { name }] of byCode) assert.ok(page.includes(`| \`${name}\` | \`${code}\` |`), name);
});
