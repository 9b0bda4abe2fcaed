'use strict';

const { byCode, ...errors } = require('./lib/errors.js');
const { TicketBroker } = require('./lib/broker.js');
const { Grant, Ticket } = require('./lib/ticket.js');

module.exports = { TicketBroker, Ticket, Grant, ...errors };
