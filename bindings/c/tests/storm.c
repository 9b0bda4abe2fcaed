/*
 * Many threads, few keys, one broker: storm THREADS SECONDS ADDRESS...
 *
 * Behind each lock a counter that loses additions as soon as two are inside. Whatever is not
 * certain (a leader that was killed) is cleared up by verify.
 */
#include "check.h"

enum { KEYS = 16, WARM = 10 };

static ticketing_broker broker;
static double until;
static volatile long counters[KEYS];
static long added[KEYS];
static uint64_t tokens[KEYS];
static pthread_mutex_t sums = PTHREAD_MUTEX_INITIALIZER;
static long uncertain_ones, refused_ones;

static int get(const char *key, ticketing_ticket *ticket)
{
    ticketing_uncertain uncertain;
    int status = ticketing_acquire(broker, key, strlen(key), NULL, ticket);
    if (status != TICKETING_INDETERMINATE) {
        return status;
    }
    OK(ticketing_uncertain_keep(&uncertain));
    do {
        status = ticketing_verify(uncertain, 30, ticket);
    } while (status == TICKETING_INDETERMINATE);
    OK(ticketing_uncertain_free(uncertain));
    pthread_mutex_lock(&sums);
    uncertain_ones++;
    pthread_mutex_unlock(&sums);
    return status;
}

static void *cycles(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    while (now() < until) {
        int key = (int)(state++ % KEYS), status;
        char name[16];
        ticketing_ticket ticket;
        ticketing_grant grant = TICKETING_GRANT_INIT;
        long seen;
        sprintf(name, "storm:%d", key);
        status = get(name, &ticket);
        if (status != TICKETING_OK) {
            CHECK(status == TICKETING_BUSY || status == TICKETING_TIMEOUT || status == TICKETING_NOT_CONNECTED
                  || status == TICKETING_NOT_ACQUIRED);
            pthread_mutex_lock(&sums);
            refused_ones++;
            pthread_mutex_unlock(&sums);
            pause_ms(20);
            continue;
        }
        OK(ticketing_ticket_info(ticket, &grant));
        CHECK(grant.remaining > 5);
        seen = counters[key];
        CHECK(tokens[key] < grant.token);
        tokens[key] = grant.token;
        if (state % 16 == 0) {
            pause_ms(0);
        }
        counters[key] = seen + 1;
        __atomic_fetch_add(&added[key], 1, __ATOMIC_RELAXED);
        status = ticketing_release(ticket);
        if (status == TICKETING_NOT_HELD) {
            /* An earlier try of it may have lost its answer with the leader. */
            ticketing_error error = TICKETING_ERROR_INIT;
            OK(ticketing_last_error(&error));
            CHECK(error.may_have_released);
        } else {
            CHECK(status == TICKETING_OK || status == TICKETING_RELEASE_UNCONFIRMED);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = atoi(argv[1]), i;
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    long sum = 0;
    broker = open_broker(argc - 3, argv + 3);
    until = now() + atof(argv[2]);
    for (i = 0; i < threads; i++) {
        CHECK(pthread_create(&ids[i], NULL, cycles, (void *)(uintptr_t)i) == 0);
    }
    while (__atomic_load_n(&added[0], __ATOMIC_RELAXED) < WARM && now() < until) {
        pause_ms(1);
    }
    puts("under way");
    fflush(stdout);
    for (i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    for (i = 0; i < KEYS; i++) {
        CHECK(counters[i] == added[i]);
        sum += counters[i];
    }
    CHECK(sum > 0);
    OK(ticketing_broker_free(broker));
    free(ids);
    printf("ok: %ld cycles, %ld cleared up, %ld refused\n", sum, uncertain_ones, refused_ones);
    return 0;
}
