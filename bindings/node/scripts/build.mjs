// Builds the compiled part for this machine, in release, and puts it into its place.
// Needs Rust and a C compiler.

import { execFileSync } from 'node:child_process';
import { cpSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const { platform } = require('../lib/platforms.js');

const root = fileURLToPath(new URL('..', import.meta.url));
const cargo = (args) => execFileSync('cargo', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 28 });

// Cargo itself knows where its target directory is.
const messages = cargo(['build', '--release', '--package', 'ticketing-node', '--message-format', 'json-render-diagnostics']);
const artifacts = messages.split('\n').filter((line) => line !== '').map((line) => JSON.parse(line));
const built = artifacts.find(({ reason, target }) => reason === 'compiler-artifact' && target.name === 'ticketing_node');
const [library] = built.filenames.filter((file) => /\.(so|dylib|dll)$/.test(file));
const place = path.join(root, `ticketing.${platform()}.node`);
cpSync(library, place);
console.log(path.relative(process.cwd(), place));
