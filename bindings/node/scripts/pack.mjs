// Packs what is published: the package itself, and one with the compiled addon of
// this machine, into `dist` or another folder: `node scripts/pack.mjs [FOLDER]`
//
// Only here do the packages of the platforms become dependencies of the package:
// in the repository they would be asked for before they exist.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const { PREBUILT, platform } = require('../lib/platforms.js');

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = path.resolve(process.argv[2] ?? path.join(root, 'dist'));
const here = platform();
if (!PREBUILT.includes(here)) {
  console.error(`there is no package for ${here}; those of ${PREBUILT.join(', ')} can be packed, each on its own platform`);
  process.exit(1);
}

const stage = mkdtempSync(path.join(tmpdir(), 'ticketing-pack-'));
try {
  mkdirSync(folder, { recursive: true });

  const main = path.join(stage, 'ticketing');
  const manifest = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  for (const file of [...manifest.files, 'README.md']) cpSync(path.join(root, file), path.join(main, file), { recursive: true });
  cpSync(path.join(root, '..', '..', 'LICENSE'), path.join(main, 'LICENSE'));
  const { devDependencies, scripts, ...published } = manifest;
  published.optionalDependencies = Object.fromEntries(PREBUILT.map((name) => [`ticketing-${name}`, manifest.version]));
  writeFileSync(path.join(main, 'package.json'), `${JSON.stringify(published, undefined, 2)}\n`);
  pack(main);

  const native = path.join(stage, here);
  cpSync(path.join(root, 'npm', here), native, { recursive: true });
  cpSync(path.join(root, '..', '..', 'LICENSE'), path.join(native, 'LICENSE'));
  cpSync(path.join(root, `ticketing.${here}.node`), path.join(native, `ticketing.${here}.node`));
  pack(native);
} finally {
  rmSync(stage, { recursive: true });
}

function pack(from) {
  const command = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  process.stdout.write(execFileSync(command, ['pack', '--pack-destination', folder], { cwd: from, stdio: ['ignore', 'pipe', 'ignore'] }));
}
