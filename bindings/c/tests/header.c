/* The header alone, and all its initialisers. */
#include "ticketing.h"

static void done(void *user_data, int status, ticketing_ticket ticket)
{
    (void)user_data;
    (void)status;
    (void)ticket;
}

int main(void)
{
    ticketing_broker_options options = TICKETING_BROKER_OPTIONS_INIT;
    ticketing_acquire_options wishes = TICKETING_ACQUIRE_OPTIONS_INIT;
    ticketing_grant grant = TICKETING_GRANT_INIT;
    ticketing_error error = TICKETING_ERROR_INIT;
    ticketing_broker broker = { 0 };
    ticketing_call call = { 0 };
    uint64_t most = grant.token - 1;
    if (ticketing_broker_open(&options, &broker) == TICKETING_OK) {
        return ticketing_acquire_start(broker, "k", 1, &wishes, done, &most, &call);
    }
    return ticketing_last_error(&error);
}
