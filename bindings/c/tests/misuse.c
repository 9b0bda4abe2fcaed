/* Every mistake is a status: misuse ADDRESS */
#include "check.h"

#include <math.h>
#include <limits.h>

/* An address that nobody answers at is enough for what is refused before it is sent. */
static void null_and_zero(ticketing_broker broker)
{
    ticketing_broker no_broker = { 0 };
    ticketing_ticket no_ticket = { 0 }, ticket;
    ticketing_call no_call = { 0 };
    ticketing_uncertain no_uncertain = { 0 };
    ticketing_broker_options options = TICKETING_BROKER_OPTIONS_INIT;
    ticketing_grant grant = TICKETING_GRANT_INIT;
    const char *null_address[1] = { NULL };
    uint32_t number;
    size_t length;
    told told = TOLD_INIT;

    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_broker_open(NULL, &broker));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_broker_open(&options, NULL));
    options.address_count = 1;
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_broker_open(&options, &no_broker));
    options.addresses = null_address;
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_broker_open(&options, &no_broker));
    options.address_count = (size_t)-1;
    EXPECT(TICKETING_INVALID_INPUT, ticketing_broker_open(&options, &no_broker));
    options.address_count = 0;
    options.token_len = 20;
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_broker_open(&options, &no_broker));
    CHECK(no_broker.id == 0);

    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_acquire(no_broker, "k", 1, NULL, &ticket));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_acquire(broker, NULL, 0, NULL, &ticket));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_acquire(broker, NULL, 1, NULL, &ticket));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_acquire(broker, "k", 1, NULL, NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_try_acquire(no_broker, "k", 1, 1, &ticket));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_try_acquire(broker, "k", 1, 1, NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_acquire_start(no_broker, "k", 1, NULL, tell, &told, NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_acquire_start(broker, "k", 1, NULL, NULL, &told, NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_release(no_ticket));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_release_start(no_ticket, tell, &told, NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_release_token(broker, NULL, 3, 1));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_release_token_start(broker, "k", 1, 1, NULL, &told, NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_ticket_info(no_ticket, &grant));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_ticket_detach(no_ticket, &grant));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_cancel(no_call));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_place(no_call, &number, &number));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_verify(no_uncertain, 1, &ticket));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_verify_start(no_uncertain, 1, tell, &told, NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_uncertain_keep(NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_last_error(NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_wait_ready(no_broker, 1));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_broker_close(no_broker));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_connections(broker, NULL, 0, NULL));
    EXPECT(TICKETING_NULL_ARGUMENT, ticketing_connections(broker, NULL, 4096, &length));
    OK(ticketing_broker_free(no_broker));
    OK(ticketing_ticket_free(no_ticket));
    OK(ticketing_uncertain_free(no_uncertain));
    CHECK(told.calls == 0);
}

static void stale(int count, char **addresses)
{
    ticketing_broker broker = open_broker(count, addresses);
    ticketing_ticket ticket, made_up = { 0xdeadbeefdeadbeefULL };
    ticketing_broker made_up_broker = { UINT64_MAX };
    ticketing_call made_up_call = { INT64_MAX };
    ticketing_uncertain made_up_uncertain = { UINT64_MAX - 1 };
    ticketing_acquire_options brief = TICKETING_ACQUIRE_OPTIONS_INIT;
    ticketing_grant grant = TICKETING_GRANT_INIT;
    told told = TOLD_INIT;

    OK(ticketing_acquire(broker, "stale", 5, NULL, &ticket));
    OK(ticketing_release(ticket));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_release(ticket));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_ticket_free(ticket));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_ticket_info(ticket, &grant));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_ticket_detach(ticket, &grant));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_release_start(ticket, tell, &told, NULL));
    OK(ticketing_acquire(broker, "stale", 5, NULL, &ticket));
    OK(ticketing_ticket_free(ticket));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_ticket_free(ticket));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_release(made_up));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_cancel(made_up_call));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_uncertain_free(made_up_uncertain));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_broker_free(made_up_broker));

    /* A handle of another kind. */
    ticket.id = broker.id;
    EXPECT(TICKETING_STALE_HANDLE, ticketing_release(ticket));

    /* A ticket outlives the handle of its broker, but cannot be released any more. */
    brief.lease = 10; /* for who plays this again */
    OK(ticketing_acquire(broker, "outlives", 8, &brief, &ticket));
    OK(ticketing_broker_close(broker));
    OK(ticketing_broker_close(broker));
    EXPECT(TICKETING_CLOSED, ticketing_acquire(broker, "k", 1, NULL, &made_up));
    EXPECT(TICKETING_CLOSED, ticketing_acquire_start(broker, "k", 1, NULL, tell, &told, NULL));
    OK(ticketing_broker_free(broker));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_broker_free(broker));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_broker_close(broker));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_acquire(broker, "k", 1, NULL, &made_up));
    OK(ticketing_ticket_info(ticket, &grant));
    CHECK(grant.remaining > 0 && strcmp(grant.key, "outlives") == 0);
    EXPECT(TICKETING_CLOSED, ticketing_release(ticket));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_release(ticket));
    CHECK(told.calls == 0);
}

static void keys(ticketing_broker broker)
{
    ticketing_ticket ticket;
    char *exact = malloc(3);
    char long_key[129];
    memcpy(exact, "abc", 3); /* and no NUL: a read beyond it is seen */
    OK(ticketing_acquire(broker, exact, 3, NULL, &ticket));
    OK(ticketing_release(ticket));
    free(exact);
    memset(long_key, 'k', sizeof long_key);
    OK(ticketing_acquire(broker, long_key, 128, NULL, &ticket));
    {
        ticketing_grant grant = TICKETING_GRANT_INIT;
        OK(ticketing_ticket_info(ticket, &grant));
        CHECK(strlen(grant.key) == 128);
    }
    OK(ticketing_release(ticket));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, long_key, 129, NULL, &ticket));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "", 0, NULL, &ticket));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "k", (size_t)-1, NULL, &ticket));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "two words", 9, NULL, &ticket));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "line\n", 5, NULL, &ticket));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "\xff", 1, NULL, &ticket));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_release_token(broker, "\xc0\xaf", 2, 1));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_release_token(broker, "k", 129, 1));
    CHECK(ticket.id == 0);
}

static void times(ticketing_broker broker)
{
    static const double never[] = { -1, -0.001, 1e300, 256 };
    ticketing_acquire_options options = TICKETING_ACQUIRE_OPTIONS_INIT;
    ticketing_ticket ticket;
    size_t i;
    for (i = 0; i < 6; i++) {
        double bad = i < 4 ? never[i] : i == 4 ? (double)NAN : (double)INFINITY;
        ticketing_acquire_options wait = options, lease = options, least = options;
        wait.wait = lease.lease = least.min_remaining = bad;
        EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "k", 1, &wait, &ticket));
        EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "k", 1, &lease, &ticket));
        EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "k", 1, &least, &ticket));
        EXPECT(TICKETING_INVALID_INPUT, ticketing_try_acquire(broker, "k", 1, bad, &ticket));
    }
    EXPECT(TICKETING_INVALID_INPUT, ticketing_try_acquire(broker, "k", 1, 0, &ticket));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_try_acquire(broker, "k", 1, 251, &ticket));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_wait_ready(broker, (double)NAN));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_wait_ready(broker, -1));
}

static void sizes(ticketing_broker broker, char *address)
{
    /* What a later version of the header could have. */
    struct larger {
        ticketing_acquire_options known;
        double more;
    } larger = { TICKETING_ACQUIRE_OPTIONS_INIT, 0 };
    ticketing_broker_options options = TICKETING_BROKER_OPTIONS_INIT;
    ticketing_acquire_options small = TICKETING_ACQUIRE_OPTIONS_INIT;
    ticketing_grant grant = TICKETING_GRANT_INIT;
    ticketing_error error = TICKETING_ERROR_INIT;
    ticketing_broker other;
    ticketing_ticket ticket;
    char *addresses[1];
    size_t i, length, bad[] = { 0, 1, 8, 31, SIZE_MAX, 1 << 20 };
    char buffer[1];

    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        small.size = bad[i];
        EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "k", 1, &small, &ticket));
        options.size = bad[i];
        EXPECT(TICKETING_INVALID_INPUT, ticketing_broker_open(&options, &other));
        error.size = bad[i];
        EXPECT(TICKETING_INVALID_INPUT, ticketing_last_error(&error));
    }
    addresses[0] = address;
    options.size = sizeof options;
    options.addresses = (const char *const *)addresses;
    options.address_count = 1;
    options.abi_version = TICKETING_ABI_VERSION + 1;
    EXPECT(TICKETING_INVALID_INPUT, ticketing_broker_open(&options, &other));
    options.abi_version = TICKETING_ABI_VERSION;
    options.ca_file = "/nowhere/ca.pem";
    EXPECT(TICKETING_INVALID_INPUT, ticketing_broker_open(&options, &other));
    options.tls = 1;
    EXPECT(TICKETING_TLS, ticketing_broker_open(&options, &other));
    CHECK(other.id == 0);

    larger.known.size = sizeof larger;
    OK(ticketing_acquire(broker, "larger", 6, &larger.known, &ticket));
    grant.size = 8;
    EXPECT(TICKETING_INVALID_INPUT, ticketing_ticket_info(ticket, &grant));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_ticket_detach(ticket, &grant));
    OK(ticketing_release(ticket));
    larger.more = 1;
    EXPECT(TICKETING_INVALID_INPUT, ticketing_acquire(broker, "larger", 6, &larger.known, &ticket));

    EXPECT(TICKETING_BUFFER_TOO_SMALL, ticketing_connections(broker, NULL, 0, &length));
    buffer[0] = 'x';
    EXPECT(TICKETING_BUFFER_TOO_SMALL, ticketing_connections(broker, buffer, 1, &length));
    CHECK(buffer[0] == 'x');
    {
        char *exact = malloc(length + 1);
        OK(ticketing_connections(broker, exact, length + 1, &length));
        CHECK(strlen(exact) == length && exact[0] == '[' && strstr(exact, address) != NULL);
        EXPECT(TICKETING_BUFFER_TOO_SMALL, ticketing_connections(broker, exact, length, &length));
        free(exact);
    }
    CHECK(ticketing_abi_version() == TICKETING_ABI_VERSION);
    CHECK(strcmp(ticketing_version(), TICKETING_VERSION) == 0);
}

/* What may be called in a callback, and what may not. */
typedef struct inside {
    ticketing_broker broker;
    told done;
    told second;
} inside;

static void calls_back_in(void *user_data, int status, ticketing_ticket ticket)
{
    inside *in = user_data;
    ticketing_grant grant = TICKETING_GRANT_INIT;
    ticketing_ticket other;
    ticketing_uncertain uncertain;
    size_t length;
    OK(status);
    OK(ticketing_ticket_info(ticket, &grant));
    EXPECT(TICKETING_WOULD_DEADLOCK, ticketing_acquire(in->broker, "in", 2, NULL, &other));
    EXPECT(TICKETING_WOULD_DEADLOCK, ticketing_try_acquire(in->broker, "in", 2, 1, &other));
    EXPECT(TICKETING_WOULD_DEADLOCK, ticketing_wait_ready(in->broker, 1));
    EXPECT(TICKETING_WOULD_DEADLOCK, ticketing_release_token(in->broker, "in", 2, grant.token));
    EXPECT(TICKETING_WOULD_DEADLOCK, ticketing_release(ticket));
    EXPECT(TICKETING_BUFFER_TOO_SMALL, ticketing_connections(in->broker, NULL, 0, &length));
    EXPECT(TICKETING_INVALID_INPUT, ticketing_uncertain_keep(&uncertain));
    /* The ticket is still there, and starting is fine. */
    OK(ticketing_acquire_start(in->broker, "second", 6, NULL, tell, &in->second, NULL));
    OK(ticketing_release_start(ticket, tell, &in->done, NULL));
}

static void closes(void *user_data, int status, ticketing_ticket ticket)
{
    inside *in = user_data;
    OK(status);
    OK(ticketing_ticket_free(ticket));
    OK(ticketing_broker_close(in->broker));
    OK(ticketing_broker_free(in->broker));
    tell(&in->done, status, ticket);
}

static void callbacks(int count, char **addresses)
{
    inside in = { { 0 }, TOLD_INIT, TOLD_INIT };
    inside last = { { 0 }, TOLD_INIT, TOLD_INIT };
    in.broker = open_broker(count, addresses);
    OK(ticketing_acquire_start(in.broker, "first", 5, NULL, calls_back_in, &in, NULL));
    OK(outcome(&in.done));
    OK(outcome(&in.second));
    OK(ticketing_release(in.second.ticket));
    last.broker = in.broker;
    OK(ticketing_acquire_start(in.broker, "first", 5, NULL, closes, &last, NULL));
    OK(outcome(&last.done));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_broker_free(in.broker));
}

static void errors(ticketing_broker broker)
{
    ticketing_error error = TICKETING_ERROR_INIT;
    int status;
    EXPECT(TICKETING_NOT_HELD, ticketing_release_token(broker, "nobody", 6, UINT64_MAX));
    OK(ticketing_last_error(&error));
    CHECK(error.status == TICKETING_NOT_HELD && error.has_token && error.token == UINT64_MAX);
    CHECK(!error.has_owner && !error.may_have_released);
    CHECK(strcmp(error.key, "nobody") == 0 && strstr(error.message, "not held") != NULL);
    EXPECT(TICKETING_NOT_HELD, ticketing_release_token(broker, "nobody", 6, 9007199254740993ULL));
    OK(ticketing_last_error(&error));
    CHECK(error.token == 9007199254740993ULL);
    for (status = -1000; status < 1000; status++) {
        CHECK(strlen(ticketing_strerror(status)) > 0 && strlen(ticketing_status_name(status)) > 0);
    }
    CHECK(ticketing_strerror(INT_MIN) != NULL && ticketing_strerror(INT_MAX) != NULL);
}

static void *no_failure_yet(void *nothing)
{
    ticketing_error error = TICKETING_ERROR_INIT;
    ticketing_uncertain uncertain;
    CHECK(strcmp(ticketing_last_message(), "") == 0);
    OK(ticketing_last_error(&error));
    CHECK(error.status == TICKETING_OK && error.key == NULL && error.message[0] == '\0');
    EXPECT(TICKETING_INVALID_INPUT, ticketing_uncertain_keep(&uncertain));
    return nothing;
}

int main(int argc, char **argv)
{
    ticketing_broker broker = open_broker(argc - 1, argv + 1);
    pthread_t thread;
    null_and_zero(broker);
    stale(argc - 1, argv + 1);
    keys(broker);
    times(broker);
    sizes(broker, argv[1]);
    callbacks(argc - 1, argv + 1);
    errors(broker);
    pthread_create(&thread, NULL, no_failure_yet, NULL);
    pthread_join(thread, NULL);
    OK(ticketing_broker_free(broker));
    puts("ok");
    return 0;
}
