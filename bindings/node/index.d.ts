/**
 * The client of the Ticketing lock service: FIFO distributed locks with fencing tokens.
 *
 * @packageDocumentation
 */

/** How TLS is spoken. By default the certificates that Node's machine trusts, and the host of each address. */
export interface TlsOptions {
  /** A PEM file with the certificates to trust, in place of the system's. */
  caFile?: string | undefined;
  /** The same as text or bytes; both may be given. */
  caPem?: string | Uint8Array | undefined;
  /** The name that the certificate must have, in place of each address's host. */
  serverName?: string | undefined;
  /**
   * Turns every check of the certificate off: anyone on the path can then read and change all that is said, and
   * hand out locks. For experiments only.
   */
  dangerouslyAcceptAnyCertificate?: boolean | undefined;
}

/** What a broker is told besides where the servers are. */
export interface ConnectOptions {
  /** The secret shared with the servers. Default: none. */
  token?: string | Uint8Array | undefined;
  /** `true` for TLS with the system's roots. Default: plain TCP. */
  tls?: boolean | TlsOptions | undefined;
  /** Talk only to servers of this fencing domain (32 hexadecimal digits), so that tokens stay comparable. Default: any. */
  expectDomain?: string | undefined;
  /** How many acquires, and how many releases, may be pending at once; more are refused. Default: 16,384. */
  maxPending?: number | undefined;
}

/** What a broker is told. */
export interface BrokerOptions extends ConnectOptions {
  /**
   * The servers, as `host:port`; an IPv6 address stands in brackets, without a port it is 5225. Only these are
   * ever dialled, so name all nodes of a cluster.
   */
  addrs: string | readonly string[];
}

/** What an acquire asks for. Times are in seconds; fractions are rounded up. */
export interface AcquireOptions {
  /** How long to wait for the lock, 0 (one immediate try that never queues) to 255. Default: 30. */
  wait?: number | undefined;
  /**
   * After how long the server takes the lock back by itself, 1 to 250: longer than the slowest run of the
   * critical section. Default: 60.
   */
  lease?: number | undefined;
  /** The least time that must be left of the lease at the grant; with less, it is given back. Default: any. */
  minRemaining?: number | undefined;
  /** Aborted, it ends the acquire with its reason: a waiter leaves the queue, a late grant is given back. */
  signal?: AbortSignal | undefined;
}

/** Where an acquire stands in the queue of its key. */
export interface Place {
  /** 1 is the head of the queue. 0: not in the queue, since the acquire was not sent yet, or is over. */
  place: number;
  /** How many wait for the key. */
  waiters: number;
}

/** How one connection of a broker stands. */
export interface ConnectionStatus {
  /** The configured address. */
  readonly address: string;
  /** Whether a session is open. */
  readonly open: boolean;
  /** The server's fencing domain, where it named one. */
  readonly domain: string | null;
  /** The server's node id, where it named one. */
  readonly node: bigint | null;
  /** Whether that node leads; `null`: nothing is known. */
  readonly leads: boolean | null;
  /** Whether protocol extension 1 is spoken. */
  readonly extension: boolean;
  /** Why the last attempt failed or the last session ended; `null` while open. */
  readonly lastError: string | null;
  /** Plain data for `JSON.stringify`, with 64-bit numbers as texts. */
  toJSON(): object;
}

/** A held lock as JSON has it: numbers of 64 bits are texts. */
export interface LockJson {
  key: string;
  token: string;
  owner: string;
  domain: string | null;
  remaining: number;
}

/**
 * Acquires and releases locks, over connections that it keeps by itself.
 *
 * It connects in the background: a server that is not there yet is found when it comes. Idle, it does not keep
 * the process alive; a call that somebody waits for does.
 *
 * ```js
 * const broker = new TicketBroker({ addrs: ['127.0.0.1:5225'] });
 * const ticket = await broker.acquire('seat:12', { wait: 30, lease: 10 });
 * // … write to the database, together with ticket.token …
 * await ticket.release();
 * await broker.close();
 * ```
 */
export class TicketBroker {
  /**
   * @throws {TicketInvalidInput} for settings that make no sense
   * @throws {TicketTlsError} for certificates or names that cannot be used
   */
  constructor(options: BrokerOptions);

  /** A broker for these servers: `TicketBroker.connect('a:5225', 'b:5225', 'c:5225', { token })`. */
  static connect(...addrs: readonly string[]): TicketBroker;
  static connect(...addrsAndOptions: readonly [...addrs: string[], options: ConnectOptions]): TicketBroker;
  static connect(addrs: readonly string[], options?: ConnectOptions): TicketBroker;

  /**
   * Waits in the queue of `key`, then holds the lock for at most the lease. The lock is not re-entrant: its
   * holder queues like anybody else.
   *
   * Rejects with one of these, of which only `TicketIndeterminate` leaves open whether the lock is held:
   * - `TicketTimeout`, `TicketBusy`, `TicketNotConnected`
   * - `TicketIndeterminate`: sent, and no answer came. See its `verify`.
   * - `TicketInsufficientLease`: granted too late to be of use, and given back
   * - `TicketInvalidInput`, `TicketClientCapacity`, `TicketClosed`: nothing was sent
   * - `TicketAuthError`, `TicketTlsError`, `TicketWrongDomain`: every connection fails for that reason
   * - the reason of the signal, if it was aborted
   * - `TypeError` for arguments of a wrong type
   */
  acquire(key: string, options?: AcquireOptions): Acquire;
  acquire(key: string, wait?: number, lease?: number): Acquire;

  /** One immediate try that never enters the queue; rejects with `TicketTimeout` if the lock is held. */
  tryAcquire(key: string, options?: Omit<AcquireOptions, 'wait'>): Acquire;
  tryAcquire(key: string, lease?: number): Acquire;

  /**
   * Runs `fn` while the lock is held, and releases it afterwards, whatever `fn` does. Ends with what `fn` returned
   * or threw; and rejects with `TicketNotHeld` if the lease ran out before `fn` was through, so that it may not
   * have been alone.
   */
  withLock<T>(key: string, fn: (ticket: Ticket) => T | PromiseLike<T>): Promise<T>;
  withLock<T>(key: string, options: AcquireOptions | undefined, fn: (ticket: Ticket) => T | PromiseLike<T>): Promise<T>;

  /**
   * Gives back the lock that was granted under exactly this token, wherever it was granted. A ticket does that by
   * itself; this is for a `Grant`.
   */
  release(key: string, token: bigint): Promise<void>;

  /**
   * Waits until a session is open that can be asked for locks. Rejects with `TicketAuthError`, `TicketTlsError` or
   * `TicketWrongDomain` as soon as every connection fails for that reason; with `TicketNotConnected` when the time
   * (in seconds, default 10) is over; with `TicketClosed`.
   */
  waitReady(timeout?: number): Promise<void>;

  /** How the connections stand, in the order of the addresses. */
  connections(): ConnectionStatus[];

  /**
   * Ends the broker in order, within 2 s. No acquire begins any more, those that wait end (`TicketClosed`, or
   * `TicketIndeterminate` where that cannot be known), releases under way are given a moment. Tickets that are
   * still held stay valid until their leases end, but can no longer be released here. Closing twice does no harm.
   */
  close(): Promise<void>;

  /** `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** An acquire under way: the promise of a ticket. */
export interface Acquire extends Promise<Ticket> {
  /**
   * Asks the server where this acquire stands in its queue. Rejects with `TicketUnsupported` if the server does
   * not tell places, and with `TicketNotConnected` when no answer came within 5 s.
   */
  place(): Promise<Place>;

  /**
   * Ends it with this reason, by default an `AbortError`: a waiter leaves the queue, a late grant is given back.
   * Does nothing once it is settled.
   */
  cancel(reason?: unknown): void;
}

/**
 * A lock that is held. Give it back with `release`, which tells whether it was still held.
 *
 * Holding a ticket proves little to a database: a process can sleep through the end of its lease. Store the token
 * with what the lock protects, and refuse writes with a smaller one, in the same transaction.
 */
export class Ticket {
  private constructor();

  /** The lock's name. */
  readonly key: string;
  /** The fencing token: greater than that of every earlier grant in the domain, whatever the key. */
  readonly token: bigint;
  /** The owner number of the acquire, as the server knows it. */
  readonly owner: bigint;
  /** The fencing domain, within which tokens compare, where the server named one: 32 hexadecimal digits. */
  readonly domain: string | null;

  /** Seconds that are surely left of the lease; 0 when nothing is, or after its release. */
  remaining(): number;

  /**
   * Gives the lock back. Tried for up to 5 s, over every connection that can serve. Rejects with `TicketNotHeld`
   * if the lease had run out, and with `TicketReleaseUnconfirmed` if no word came.
   */
  release(): Promise<void>;

  /**
   * Turns the ticket into plain data, for handing the lock to another process. Nothing releases it by itself then,
   * but the end of its lease.
   */
  detach(): Grant;

  /** `release`, for `await using`; nothing if it was released or detached. */
  [Symbol.asyncDispose](): Promise<void>;

  /** Gives it back in the background, for `using`: whether it was still held is not told. */
  [Symbol.dispose](): void;

  /** Plain data for `JSON.stringify`, with 64-bit numbers as texts. */
  toJSON(): LockJson;
}

/** A held lock as plain data, released by `TicketBroker.release(key, token)`. */
export class Grant {
  private constructor();

  readonly key: string;
  readonly token: bigint;
  readonly owner: bigint;
  readonly domain: string | null;
  /** What was surely left of the lease when the ticket was detached, in seconds. */
  readonly remaining: number;

  /** Plain data for `JSON.stringify`, with 64-bit numbers as texts. */
  toJSON(): LockJson;
}

/** The kinds of failure; the same names in every language. */
export type TicketErrorCode =
  | 'timeout'
  | 'busy'
  | 'not_connected'
  | 'indeterminate'
  | 'insufficient_lease'
  | 'not_held'
  | 'release_unconfirmed'
  | 'auth'
  | 'tls'
  | 'wrong_domain'
  | 'invalid_input'
  | 'client_capacity'
  | 'closed'
  | 'unsupported';

/** What an error is about. */
export interface TicketErrorAbout {
  key?: string | undefined;
  owner?: bigint | undefined;
  token?: bigint | undefined;
}

/** What every error of Ticketing is. Nothing was acquired, unless the class says that it cannot be known. */
export class TicketError extends Error {
  protected constructor(message: string, about?: TicketErrorAbout);

  /** The kind of failure. */
  readonly code: TicketErrorCode;
  /** The lock that was asked for, where it is a legal name. */
  readonly key?: string;
  /** The owner number of the acquire, as the server knows it. */
  readonly owner?: bigint;
  /** The fencing token that a release named. */
  readonly token?: bigint;

  /** Plain data for `JSON.stringify`, with 64-bit numbers as texts. */
  toJSON(): object;
}

/** The wait ran out in the queue. The lock was not acquired. */
export class TicketTimeout extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'timeout';
}

/** The server said no: it is at a limit, or does not lead now. Not acquired. */
export class TicketBusy extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'busy';
}

/** Nothing was sent: there was no usable connection in time. Not acquired. */
export class TicketNotConnected extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'not_connected';
}

/** The acquire was sent and its outcome is unknown. Do not enter the critical section. */
export class TicketIndeterminate extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'indeterminate';

  /**
   * Asks the leading server for up to `timeout` seconds (default 5): a ticket, if the lock is held after all, or
   * `null`, if it was not acquired and never will be.
   *
   * Rejects with `TicketIndeterminate` again while nobody could say, after which this can be called again.
   */
  verify(timeout?: number): Promise<Ticket | null>;
}

/** The lock came with too little of its lease left, and was released. */
export class TicketInsufficientLease extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'insufficient_lease';
}

/** Not held under that token: the lease ran out, or it was released before. Others may have had the lock since. */
export class TicketNotHeld extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'not_held';
}

/** The release was not confirmed in time. The lease will end the lock. */
export class TicketReleaseUnconfirmed extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'release_unconfirmed';
}

/** The server refused the token of the client. */
export class TicketAuthError extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'auth';
}

/** TLS could not be set up, or the certificate is not trusted. */
export class TicketTlsError extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'tls';
}

/** The server belongs to another fencing domain than the expected one. */
export class TicketWrongDomain extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'wrong_domain';
}

/** An argument breaks a rule; nothing was sent. */
export class TicketInvalidInput extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'invalid_input';
}

/** Too many requests are pending in this client; nothing was sent. */
export class TicketClientCapacity extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'client_capacity';
}

/** The broker is closed. */
export class TicketClosed extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'closed';
}

/** The server does not speak the protocol extension that this needs. */
export class TicketUnsupported extends TicketError {
  constructor(message: string, about?: TicketErrorAbout);
  readonly code: 'unsupported';
}
