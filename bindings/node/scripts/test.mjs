// Puts the addon that cargo built into its place, and runs all tests.
// `node scripts/test.mjs [ADDON]`

import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const { platform } = require('../lib/platforms.js');

const root = fileURLToPath(new URL('..', import.meta.url));
const [addon] = process.argv.slice(2);
if (addon !== undefined) cpSync(addon, path.join(root, `ticketing.${platform()}.node`));
const tests = readdirSync(path.join(root, 'test')).filter((file) => file.endsWith('.test.mjs'));
const { status } = spawnSync(process.execPath, ['--test', ...tests.map((file) => path.join('test', file))], {
  cwd: root,
  stdio: 'inherit',
});
process.exit(status ?? 1);
