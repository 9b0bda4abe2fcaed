// The same from CommonJS.

import ticketing = require('ticketing');

export const broker: ticketing.TicketBroker = ticketing.TicketBroker.connect('a:5225');
export const error: ticketing.TicketError = new ticketing.TicketTimeout('a text', { key: 'k', owner: 1n });
