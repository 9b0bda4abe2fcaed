'use strict';

const { TicketInvalidInput } = require('./errors.js');
const native = require('./native.js');
const { Ticket } = require('./ticket.js');

// An acquire under way: the promise of a ticket.
class Acquire extends Promise {
  #call;

  // What `then` makes is a plain promise.
  static get [Symbol.species]() {
    return Promise;
  }

  // `check` throws what is wrong with the arguments.
  constructor(home, check) {
    let call;
    super((resolve, reject) => {
      call = new Call(home, resolve, reject);
    });
    this.#call = call;
    try {
      call.begin(check());
    } catch (error) {
      call.refuse(error);
    }
  }

  place() {
    return this.#call.place();
  }

  cancel(reason = new DOMException('The acquire was cancelled', 'AbortError')) {
    this.#call.cancel(reason);
  }
}

// The part of it that is not for callers.
class Call {
  constructor(home, resolve, reject) {
    this.home = home;
    this.resolve = resolve;
    this.reject = reject;
    this.over = false;
    this.key = undefined;
    this.signal = undefined;
    this.number = undefined;
  }

  begin({ key, wait, lease, minRemaining, signal }) {
    if (signal?.aborted) throw signal.reason;
    this.key = key;
    this.number = this.home.begin(this, (core) => core.acquire(key, wait, lease, minRemaining));
    if (signal !== undefined) {
      this.signal = signal;
      signal.addEventListener('abort', this, { once: true });
    }
  }

  refuse(error) {
    this.over = true;
    this.reject(error);
  }

  // The signal calls this.
  handleEvent() {
    this.cancel(this.signal.reason);
  }

  cancel(reason) {
    if (this.over) return;
    this.leave();
    this.reject(reason);
    this.home.cancel(this.number);
  }

  end(failure, held) {
    if (this.over) {
      // The grant was faster than the cancel.
      if (held) native.giveBack(held);
      return;
    }
    this.leave();
    if (failure) this.reject(this.home.errorOf(failure));
    else this.resolve(new Ticket(this.home, this.key, held));
  }

  leave() {
    this.over = true;
    this.signal?.removeEventListener('abort', this);
  }

  async place() {
    if (this.number === undefined) throw new TicketInvalidInput('this acquire never began, so it has no place in a queue');
    // Its number may be another call's by then.
    const number = this.over ? undefined : this.number;
    return this.home.ask((core) => core.place(this.key, number), ([place, waiters]) => ({ place, waiters }));
  }
}

module.exports = { Acquire };
