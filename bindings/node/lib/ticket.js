'use strict';

const { TicketNotHeld } = require('./errors.js');
const native = require('./native.js');

const inspect = Symbol.for('nodejs.util.inspect.custom');

// JSON has no integers of 64 bits: they become texts.
function json({ key, token, owner, domain }, remaining) {
  return { key, token: token.toString(), owner: owner.toString(), domain, remaining };
}

// A lock that is held. Collected before it was released, it is given back.
class Ticket {
  #home;
  #key;
  #held;
  #facts;
  #gone = false;

  constructor(home, key, held) {
    this.#home = home;
    this.#key = key;
    this.#held = held;
  }

  get key() {
    return this.#key;
  }

  get token() {
    return this.#told.token;
  }

  get owner() {
    return this.#told.owner;
  }

  get domain() {
    return this.#told.domain ?? null;
  }

  remaining() {
    return native.remaining(this.#held);
  }

  release() {
    if (this.#gone) return Promise.reject(this.#notHeld());
    this.#gone = true;
    return this.#home.ask((core) => core.release(this.#held));
  }

  detach() {
    if (this.#gone) throw this.#notHeld();
    this.#gone = true;
    return new Grant(this, native.detach(this.#held));
  }

  async [Symbol.asyncDispose]() {
    if (!this.#gone) await this.release();
  }

  [Symbol.dispose]() {
    this.#gone = true;
    native.giveBack(this.#held);
  }

  toJSON() {
    return json(this, this.remaining());
  }

  [inspect](_depth, options, inspectValue) {
    const { key, token, owner, domain } = this;
    return `Ticket ${inspectValue({ key, token, owner, domain, remaining: this.remaining() }, options)}`;
  }

  get #told() {
    return (this.#facts ??= native.facts(this.#held));
  }

  #notHeld() {
    const { key, owner, token } = this;
    return new TicketNotHeld(`lock ${JSON.stringify(key)}: this ticket was released or detached before`, { key, owner, token });
  }
}

// A held lock as plain data; nothing releases it by itself.
class Grant {
  constructor({ key, token, owner, domain }, remaining) {
    this.key = key;
    this.token = token;
    this.owner = owner;
    this.domain = domain;
    this.remaining = remaining;
  }

  toJSON() {
    return json(this, this.remaining);
  }
}

module.exports = { Grant, Ticket };
