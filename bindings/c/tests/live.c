/* What a lock promises, by the functions of C: live ADDRESS... */
#include "check.h"

static ticketing_broker broker;

/* FIFO, places, cancel, and a release by token of another handle's ticket. */
static void queue(void)
{
    enum { WAITERS = 8 };
    ticketing_ticket held, none;
    ticketing_grant grant = TICKETING_GRANT_INIT;
    ticketing_call calls[WAITERS];
    told tolds[WAITERS];
    uint64_t last;
    int i;

    OK(ticketing_acquire(broker, "queue", 5, NULL, &held));
    EXPECT(TICKETING_TIMEOUT, ticketing_try_acquire(broker, "queue", 5, 10, &none));
    for (i = 0; i < WAITERS; i++) {
        told fresh = TOLD_INIT;
        tolds[i] = fresh;
        OK(ticketing_acquire_start(broker, "queue", 5, NULL, tell, &tolds[i], &calls[i]));
        wait_for_waiters(calls[i], (uint32_t)i + 1);
    }
    OK(ticketing_cancel(calls[3]));
    EXPECT(TICKETING_CANCELLED, outcome(&tolds[3]));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_cancel(calls[3]));
    CHECK(tolds[3].ticket.id == 0);
    OK(ticketing_ticket_detach(held, &grant));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_release(held));
    OK(ticketing_release_token(broker, grant.key, strlen(grant.key), grant.token));
    last = grant.token;
    for (i = 0; i < WAITERS; i++) {
        told done = TOLD_INIT;
        if (i == 3) {
            continue;
        }
        OK(outcome(&tolds[i]));
        OK(ticketing_ticket_info(tolds[i].ticket, &grant));
        CHECK(grant.token > last && grant.has_domain);
        CHECK(grant.remaining > 0 && grant.remaining <= 60);
        last = grant.token;
        OK(ticketing_release_start(tolds[i].ticket, tell, &done, NULL));
        OK(outcome(&done));
    }
}

/* The lease ends a lock, and its holder is told at the release. */
static void lease(void)
{
    ticketing_acquire_options options = TICKETING_ACQUIRE_OPTIONS_INIT;
    ticketing_ticket first, second;
    ticketing_grant grant = TICKETING_GRANT_INIT;
    double start = now();
    options.lease = 1;
    OK(ticketing_acquire(broker, "lease", 5, &options, &first));
    OK(ticketing_acquire(broker, "lease", 5, NULL, &second));
    CHECK(now() - start >= 0.999);
    OK(ticketing_ticket_info(first, &grant));
    CHECK(grant.remaining == 0);
    EXPECT(TICKETING_NOT_HELD, ticketing_release(first));
    OK(ticketing_release(second));
}

/* A ticket that is freed is given back. */
static void freed(void)
{
    ticketing_ticket first, second;
    OK(ticketing_acquire(broker, "freed", 5, NULL, &first));
    OK(ticketing_ticket_free(first));
    OK(ticketing_acquire(broker, "freed", 5, NULL, &second));
    OK(ticketing_release(second));
}

/* Tells the status of an acquire that waits for ever. */
static void *waits(void *from)
{
    ticketing_ticket ticket;
    ticketing_acquire_options options = TICKETING_ACQUIRE_OPTIONS_INIT;
    options.wait = 200;
    return (void *)(intptr_t)ticketing_acquire(*(ticketing_broker *)from, "held", 4, &options, &ticket);
}

/* Freed while threads wait and calls are under way: each ends, each callback comes once. */
static void free_under_way(int count, char **addresses)
{
    enum { THREADS = 16, CALLS = 200 };
    ticketing_broker other = open_broker(count, addresses);
    ticketing_ticket held;
    pthread_t threads[THREADS];
    static told tolds[CALLS];
    ticketing_call calls[CALLS];
    double start;
    int i;
    OK(ticketing_acquire(broker, "held", 4, NULL, &held));
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, waits, &other) == 0);
    }
    for (i = 0; i < CALLS; i++) {
        told fresh = TOLD_INIT;
        tolds[i] = fresh;
        OK(ticketing_acquire_start(other, "held", 4, NULL, tell, &tolds[i], &calls[i]));
    }
    wait_for_waiters(calls[CALLS - 1], CALLS + THREADS);
    start = now();
    OK(ticketing_broker_free(other));
    CHECK(now() - start < 10);
    for (i = 0; i < CALLS; i++) {
        /* All have come when the free returns. */
        CHECK(tolds[i].calls == 1);
        CHECK(tolds[i].status == TICKETING_CLOSED || tolds[i].status == TICKETING_INDETERMINATE);
        CHECK(tolds[i].ticket.id == 0);
        EXPECT(TICKETING_STALE_HANDLE, ticketing_cancel(calls[i]));
    }
    for (i = 0; i < THREADS; i++) {
        void *status;
        pthread_join(threads[i], &status);
        CHECK((intptr_t)status == TICKETING_CLOSED || (intptr_t)status == TICKETING_INDETERMINATE);
    }
    OK(ticketing_release(held));
}

/* Cancels race with grants: each callback comes once, and no lock is lost. */
static void cancel_races(void)
{
    enum { ROUNDS = 500 };
    ticketing_ticket ticket;
    int i, granted = 0;
    for (i = 0; i < ROUNDS; i++) {
        told told = TOLD_INIT;
        ticketing_call call;
        int status;
        OK(ticketing_acquire_start(broker, "race", 4, NULL, tell, &told, &call));
        if (i % 3 == 0) {
            pause_ms(0);
        }
        status = ticketing_cancel(call);
        CHECK(status == TICKETING_OK || status == TICKETING_STALE_HANDLE);
        status = outcome(&told);
        if (status == TICKETING_OK) {
            granted++;
            OK(ticketing_release(told.ticket));
        } else {
            CHECK(status == TICKETING_CANCELLED);
        }
    }
    OK(ticketing_acquire(broker, "race", 4, NULL, &ticket));
    OK(ticketing_release(ticket));
    printf("%d of %d were granted before they were cancelled\n", granted, ROUNDS);
}

int main(int argc, char **argv)
{
    broker = open_broker(argc - 1, argv + 1);
    queue();
    lease();
    freed();
    cancel_races();
    free_under_way(argc - 1, argv + 1);
    OK(ticketing_broker_free(broker));
    puts("ok");
    return 0;
}
