'use strict';

// Where the calls of one broker are under way. Each has a number; outcomes come
// back in batches, and each settles the call of its number. What is called in one
// turn begins at its end, together.

const { TicketIndeterminate, byCode } = require('./errors.js');
const native = require('./native.js');

// A broker with calls under way must not be collected, though only its own
// outcomes refer to it.
const busy = new Set();

// Not queueMicrotask, which tests with fake timers replace.
const endOfTurn = Promise.resolve();

class Home {
  #core;
  #calls = [];
  #waiting = 0;
  #flushing = false;

  constructor(settings) {
    // The addon holds the function: through a strong reference, no broker that
    // was forgotten could ever be collected.
    const here = new WeakRef(this);
    const started = native.start(settings, () => here.deref()?.#deliver());
    if (!(started instanceof native.Core)) throw this.errorOf(started);
    this.#core = started;
  }

  get core() {
    return this.#core;
  }

  // Starts a call: `start` is given the core and gives the call's number;
  // `call.end` will be given its failure or its value.
  begin(call, start) {
    const number = start(this.#core);
    if (this.#waiting === 0) this.#stay(true);
    this.#waiting += 1;
    this.#calls[number] = call;
    this.#flushSoon();
    return number;
  }

  cancel(number) {
    this.#core.cancel(number);
    this.#flushSoon();
  }

  // The same as a promise. `read` makes a result of the value.
  ask(start, read) {
    return new Promise((resolve, reject) => {
      const end = (failure, value) => {
        if (failure) reject(this.errorOf(failure));
        else resolve(read?.(value));
      };
      this.begin({ end }, start);
    });
  }

  errorOf({ code, message, uncertain, ...about }) {
    if (uncertain) {
      const { Ticket } = require('./ticket.js');
      const { seconds } = require('./input.js');
      const read = (held) => (held ? new Ticket(this, about.key, held) : null);
      const ask = (timeout) => {
        const patience = seconds('timeout', timeout);
        return this.ask((core) => core.verify(uncertain, patience), read);
      };
      return TicketIndeterminate.asking(ask, message, about);
    }
    const Kind = byCode.get(code);
    // A mistake of ours is no kind of failure that a caller can act upon.
    return Kind ? new Kind(message, about) : new Error(message);
  }

  #deliver() {
    const ended = this.#core.take();
    for (let at = 0; at < ended.length; at += 3) {
      const number = ended[at];
      const call = this.#calls[number];
      this.#calls[number] = undefined;
      this.#waiting -= 1;
      call.end(ended[at + 1], ended[at + 2]);
    }
    if (this.#waiting === 0) this.#stay(false);
  }

  #flushSoon() {
    if (this.#flushing) return;
    this.#flushing = true;
    endOfTurn.then(() => {
      this.#flushing = false;
      this.#core.flush();
    });
  }

  // While somebody waits, neither the broker nor the process may go.
  #stay(alive) {
    if (alive) busy.add(this);
    else busy.delete(this);
    this.#core.keepAlive(alive);
  }
}

module.exports = { Home };
