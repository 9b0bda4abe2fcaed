// There is one implementation, so that `instanceof` holds whichever way it was loaded.
import ticketing from './index.js';

export const {
  TicketBroker,
  Ticket,
  Grant,
  TicketError,
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
} = ticketing;
