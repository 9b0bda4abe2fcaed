'use strict';

// What JavaScript would let through, and the core has no value for: other types
// are a TypeError, values without a meaning a TicketInvalidInput. All rules of
// the service itself are the core's.

const { TicketInvalidInput } = require('./errors.js');

function typeError(name, wanted, value) {
  const found = value === null ? 'null' : typeof value;
  return Object.assign(new TypeError(`${name} must be ${wanted}, not ${found}`), { code: 'ERR_INVALID_ARG_TYPE' });
}

function text(name, value) {
  if (typeof value !== 'string') throw typeError(name, 'a string', value);
  // Its UTF-8 would be another one.
  if (!value.isWellFormed()) throw new TicketInvalidInput(`${name} is no valid Unicode: it has half a surrogate pair`);
  return value;
}

function seconds(name, value) {
  if (typeof value !== 'number') throw typeError(name, 'a number of seconds', value);
  if (!(value >= 0 && value < Infinity)) {
    throw new TicketInvalidInput(`${name} is ${value}; it must be a number of seconds that is neither negative nor endless`);
  }
  return value;
}

function u64(name, value) {
  if (typeof value !== 'bigint') throw typeError(name, 'a bigint', value);
  if (BigInt.asUintN(64, value) !== value) throw new TicketInvalidInput(`${name} is ${value}; it must be 0 to 2^64 - 1`);
  return value;
}

function bytes(name, value) {
  if (typeof value === 'string') return Buffer.from(text(name, value));
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  throw typeError(name, 'a string or a Uint8Array', value);
}

// A misspelt option would silently mean its default.
function options(what, value, known) {
  if (typeof value !== 'object' || value === null) throw typeError(what, 'an object', value);
  for (const name in value) {
    if (!known.includes(name)) {
      const message = `${what}: there is no option ${name}; there are ${known.join(', ')}`;
      throw Object.assign(new TypeError(message), { code: 'ERR_INVALID_ARG_VALUE' });
    }
  }
  return value;
}

function tls(value) {
  if (value === undefined || value === false) return undefined;
  if (value === true) return { dangerouslyAcceptAnyCertificate: false };
  const known = ['caFile', 'caPem', 'serverName', 'dangerouslyAcceptAnyCertificate'];
  const { caFile, caPem, serverName, dangerouslyAcceptAnyCertificate = false } = options('tls', value, known);
  if (typeof dangerouslyAcceptAnyCertificate !== 'boolean') {
    throw typeError('dangerouslyAcceptAnyCertificate', 'a boolean', dangerouslyAcceptAnyCertificate);
  }
  return {
    caFile: caFile === undefined ? undefined : text('caFile', caFile),
    caPem: caPem === undefined ? undefined : bytes('caPem', caPem),
    serverName: serverName === undefined ? undefined : text('serverName', serverName),
    dangerouslyAcceptAnyCertificate,
  };
}

function count(name, value) {
  if (typeof value !== 'number') throw typeError(name, 'a number', value);
  if (!Number.isInteger(value) || value < 0 || value >= 2 ** 32) {
    throw new TicketInvalidInput(`${name} is ${value}; it must be a whole number of requests, below 2^32`);
  }
  return value;
}

// What a broker is told.
function settings(value) {
  const known = ['addrs', 'token', 'tls', 'expectDomain', 'maxPending'];
  const { addrs, token, tls: tlsOptions, expectDomain, maxPending } = options('the options', value, known);
  const list = typeof addrs === 'string' ? [addrs] : addrs;
  if (!Array.isArray(list)) throw typeError('addrs', 'a string or an array of strings', addrs);
  return {
    addresses: list.map((address) => text('an address', address)),
    token: token === undefined ? undefined : bytes('token', token),
    tls: tls(tlsOptions),
    expectDomain: expectDomain === undefined ? undefined : text('expectDomain', expectDomain),
    maxPending: maxPending === undefined ? undefined : count('maxPending', maxPending),
  };
}

function signal(value) {
  if (value !== undefined && (typeof value?.aborted !== 'boolean' || typeof value.addEventListener !== 'function')) {
    throw typeError('signal', 'an AbortSignal', value);
  }
  return value;
}

module.exports = { count, options, seconds, settings, signal, text, typeError, u64 };
