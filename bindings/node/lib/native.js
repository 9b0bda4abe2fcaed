'use strict';

// Finds the compiled addon: what was built in this folder, else the package of
// this platform.

const fs = require('node:fs');
const path = require('node:path');

const { version } = require('../package.json');
const { PREBUILT, platform } = require('./platforms.js');

function load() {
  const here = platform();
  const built = path.join(__dirname, '..', `ticketing.${here}.node`);
  if (fs.existsSync(built)) return require(built);
  if (PREBUILT.includes(here)) {
    try {
      return require(`ticketing-${here}`);
    } catch (error) {
      const message =
        `the package ticketing-${here} with the compiled part of ticketing cannot be loaded; ` +
        'it is an optional dependency, so install without --omit=optional, on the platform that runs the program';
      throw new Error(message, { cause: error });
    }
  }
  throw new Error(
    `ticketing has no compiled part for ${here}; there is one for ${PREBUILT.join(', ')}. ` +
      'To build it, see "Other platforms" in docs/node.md of the repository',
  );
}

const native = load();
if (native.constants().version !== version) {
  throw new Error(`ticketing ${version} was given the compiled part of ${native.constants().version}; install both anew`);
}

module.exports = native;
