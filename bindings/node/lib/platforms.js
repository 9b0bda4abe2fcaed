'use strict';

const { readFileSync } = require('node:fs');

// The platforms for which packages with the compiled addon are published: those
// on which it is built and tested. Everywhere else it is built from source.
const PREBUILT = ['linux-x64-gnu'];

// What this machine is called in the names of packages.
function platform() {
  const { platform: system, arch } = process;
  return system === 'linux' ? `${system}-${arch}-${isMusl() ? 'musl' : 'gnu'}` : `${system}-${arch}`;
}

function isMusl() {
  try {
    return readFileSync('/usr/bin/ldd', 'latin1').includes('musl');
  } catch {
    // The report knows for sure, but resolves the name of every open socket first.
    return process.report.getReport().header.glibcVersionRuntime === undefined;
  }
}

module.exports = { PREBUILT, platform };
