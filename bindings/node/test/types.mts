// What the types allow and what they refuse; compiled, never run.

import {
  TicketBroker,
  TicketError,
  TicketIndeterminate,
  TicketTimeout,
  type Acquire,
  type Grant,
  type Place,
  type Ticket,
} from 'ticketing';

const broker = new TicketBroker({
  addrs: ['a:5225', 'b:5225'],
  token: Buffer.from('a secret of 16+ bytes'),
  tls: { caFile: 'ca.pem', serverName: 'locks.internal' },
  expectDomain: undefined,
  maxPending: 10,
});
TicketBroker.connect('a:5225', 'b:5225');
TicketBroker.connect('a:5225', { tls: true });
TicketBroker.connect(['a:5225', 'b:5225'], { token: 'a secret of 16+ bytes' });

export async function use(signal: AbortSignal): Promise<bigint> {
  const acquire: Acquire = broker.acquire('k', { wait: 5, lease: 10, minRemaining: 1, signal });
  const place: Place = await acquire.place();
  acquire.cancel(new Error(`number ${place.place}`));
  const ticket: Ticket = await acquire;
  const { token, owner }: { token: bigint; owner: bigint } = ticket;
  const text: string = ticket.toJSON().token;
  const grant: Grant = ticket.detach();
  await broker.release(grant.key, grant.token);
  await (await broker.acquire('k', 5, 10)).release();
  await (await broker.tryAcquire('k', { lease: 5 })).release();
  const length: number = await broker.withLock('k', (held) => held.key.length);
  const async: string = await broker.withLock('k', { wait: 1 }, async (held) => held.key);
  const node: bigint | null | undefined = broker.connections()[0]?.node;
  console.log(text, length, async, node);
  await using held = await broker.acquire('k');
  await using closing = broker;
  console.log(held.remaining(), closing);
  return token + owner;
}

export function seeTo(error: unknown): string {
  if (error instanceof TicketIndeterminate) {
    error.verify(5).then((ticket: Ticket | null) => ticket?.release());
    const code: 'indeterminate' = error.code;
    return code;
  }
  if (error instanceof TicketTimeout) return error.key ?? 'no key';
  if (error instanceof TicketError) {
    switch (error.code) {
      case 'busy':
        return 'later';
      // @ts-expect-error: there is no such kind
      case 'late':
        return 'never';
      default:
        return error.name;
    }
  }
  return 'something else';
}

export function mistakes(ticket: Ticket): void {
  // @ts-expect-error: a token is a bigint
  broker.release('k', 7);
  // @ts-expect-error: seconds are numbers
  broker.acquire('k', '5');
  // @ts-expect-error: there is no such option
  broker.acquire('k', { leese: 5 });
  // @ts-expect-error: nothing waits in a try
  broker.tryAcquire('k', { wait: 5 });
  // @ts-expect-error: the servers must be named
  new TicketBroker({ token: 'a secret of 16+ bytes' });
  // @ts-expect-error: only the client makes tickets
  new (ticket.constructor as typeof Ticket)();
  // @ts-expect-error: it cannot be changed
  ticket.token = 7n;
}
