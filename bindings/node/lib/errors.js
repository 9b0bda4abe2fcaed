'use strict';

// One base class, and one class for each kind of failure: a kind exists where a
// caller's next step differs. The codes are the same in every language.

class TicketError extends Error {
  constructor(message, { key, owner, token } = {}) {
    super(message);
    this.code = new.target.code;
    if (key !== undefined) this.key = key;
    if (owner !== undefined) this.owner = owner;
    if (token !== undefined) this.token = token;
  }

  // JSON has no integers of 64 bits: they become texts.
  toJSON() {
    const { name, code, message, key } = this;
    return { name, code, message, key, owner: this.owner?.toString(), token: this.token?.toString() };
  }
}

class TicketTimeout extends TicketError {
  static code = 'timeout';
}

class TicketBusy extends TicketError {
  static code = 'busy';
}

class TicketNotConnected extends TicketError {
  static code = 'not_connected';
}

class TicketIndeterminate extends TicketError {
  static code = 'indeterminate';
  #ask;

  // With what can be asked how the acquire stands.
  static asking(ask, message, about) {
    const error = new TicketIndeterminate(message, about);
    error.#ask = ask;
    return error;
  }

  async verify(timeout = 5) {
    if (this.#ask === undefined) throw new TicketInvalidInput('there is no acquire behind this error', this);
    return this.#ask(timeout);
  }
}

class TicketInsufficientLease extends TicketError {
  static code = 'insufficient_lease';
}

class TicketNotHeld extends TicketError {
  static code = 'not_held';
}

class TicketReleaseUnconfirmed extends TicketError {
  static code = 'release_unconfirmed';
}

class TicketAuthError extends TicketError {
  static code = 'auth';
}

class TicketTlsError extends TicketError {
  static code = 'tls';
}

class TicketWrongDomain extends TicketError {
  static code = 'wrong_domain';
}

class TicketInvalidInput extends TicketError {
  static code = 'invalid_input';
}

class TicketClientCapacity extends TicketError {
  static code = 'client_capacity';
}

class TicketClosed extends TicketError {
  static code = 'closed';
}

class TicketUnsupported extends TicketError {
  static code = 'unsupported';
}

const kinds = [
  TicketTimeout,
  TicketBusy,
  TicketNotConnected,
  TicketIndeterminate,
  TicketInsufficientLease,
  TicketNotHeld,
  TicketReleaseUnconfirmed,
  TicketAuthError,
  TicketTlsError,
  TicketWrongDomain,
  TicketInvalidInput,
  TicketClientCapacity,
  TicketClosed,
  TicketUnsupported,
];

for (const kind of [TicketError, ...kinds]) {
  Object.defineProperty(kind.prototype, 'name', { value: kind.name, configurable: true, writable: true });
}

const byCode = new Map(kinds.map((kind) => [kind.code, kind]));

module.exports = { TicketError, byCode, ...Object.fromEntries(kinds.map((kind) => [kind.name, kind])) };
