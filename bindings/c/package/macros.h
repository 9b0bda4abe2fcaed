/* The version of this header. */
#define TICKETING_VERSION "@VERSION@"

/* Settings of a broker, all at their defaults: set addresses and address_count. */
#define TICKETING_BROKER_OPTIONS_INIT \
    { sizeof(ticketing_broker_options), TICKETING_ABI_VERSION, 0, NULL, 0, NULL, 0, NULL, NULL, 0, \
      NULL, 0, 0, { 0 }, 0 }

/* An acquire that waits up to 30 s and holds for at most 60 s. */
#define TICKETING_ACQUIRE_OPTIONS_INIT { sizeof(ticketing_acquire_options), 30.0, 60.0, 0.0 }

/* Room for a grant. */
#define TICKETING_GRANT_INIT { sizeof(ticketing_grant), 0, 0, 0.0, 0, { 0 }, { 0 } }

/* Room for the details of a failure. */
#define TICKETING_ERROR_INIT { sizeof(ticketing_error), 0, 0, 0, 0, 0, 0, NULL, NULL }
