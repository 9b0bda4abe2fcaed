'use strict';

const { Acquire } = require('./acquire.js');
const { TicketClosed } = require('./errors.js');
const { Home } = require('./home.js');
const input = require('./input.js');
const { wait: WAIT, lease: LEASE } = require('./native.js').constants();

const WISHES = ['wait', 'lease', 'minRemaining', 'signal'];

class TicketBroker {
  #home;
  #closed;

  constructor(options) {
    this.#home = new Home(input.settings(options));
  }

  static connect(...addrs) {
    const last = addrs.at(-1);
    const hasOptions = typeof last === 'object' && last !== null && !Array.isArray(last);
    const options = hasOptions ? addrs.pop() : {};
    return new TicketBroker({ ...options, addrs: addrs.flat() });
  }

  acquire(key, wait, lease) {
    return new Acquire(this.#home, () => wishes(key, wait, lease));
  }

  tryAcquire(key, lease) {
    return new Acquire(this.#home, () => {
      if (typeof lease !== 'object') return wishes(key, 0, lease);
      const { wait, ...options } = lease ?? {};
      if (wait !== undefined) throw input.typeError('wait', 'left out where nothing waits', wait);
      return wishes(key, lease && { ...options, wait: 0 });
    });
  }

  async withLock(key, options, section) {
    const [wishes, critical] = section === undefined ? [undefined, options] : [options, section];
    if (typeof critical !== 'function') throw input.typeError('fn', 'a function', critical);
    const ticket = await this.acquire(key, wishes);
    let result;
    try {
      result = await critical(ticket);
    } catch (error) {
      // What went wrong inside matters more than what the release has to say.
      await ticket[Symbol.asyncDispose]().catch(() => {});
      throw error;
    }
    await ticket[Symbol.asyncDispose]();
    return result;
  }

  async release(key, token) {
    const [name, number] = [input.text('the key', key), input.u64('token', token)];
    await this.#home.ask((core) => core.releaseToken(name, number));
  }

  async waitReady(timeout = 10) {
    const patience = input.seconds('timeout', timeout);
    await this.#home.ask((core) => core.waitReady(patience));
  }

  connections() {
    return this.#home.core.connections().map((status) => new ConnectionStatus(status));
  }

  close() {
    this.#closed ??= this.#home.ask((core) => core.close()).catch((error) => {
      // Its end was too quick to be told.
      if (!(error instanceof TicketClosed)) throw error;
    });
    return this.#closed;
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

// How one connection stands.
class ConnectionStatus {
  constructor({ address, open, domain = null, node = null, leads = null, extension, lastError = null }) {
    Object.assign(this, { address, open, domain, node, leads, extension, lastError });
  }

  // JSON has no integers of 64 bits: they become texts.
  toJSON() {
    return { ...this, node: this.node === null ? null : this.node.toString() };
  }
}

// What an acquire asks for, in either form.
function wishes(key, wait, lease) {
  let options = { wait, lease };
  if (typeof wait === 'object') {
    if (lease !== undefined) throw input.typeError('lease', 'among the options', lease);
    options = input.options('the options', wait, WISHES);
  }
  const { wait: patience = WAIT, lease: holding = LEASE, minRemaining, signal } = options;
  return {
    key: input.text('the key', key),
    wait: input.seconds('wait', patience),
    lease: input.seconds('lease', holding),
    minRemaining: minRemaining === undefined ? undefined : input.seconds('minRemaining', minRemaining),
    signal: input.signal(signal),
  };
}

module.exports = { TicketBroker };
