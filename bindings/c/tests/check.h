/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ticketing.h"

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: not so: %s (last failure: %s)\n", __FILE__, __LINE__, \
                    #condition, ticketing_last_message());                               \
            abort();                                                                     \
        }                                                                                \
    } while (0)

/* The status of a call, told by name if it is another one. */
#define EXPECT(expected, call)                                                              \
    do {                                                                                    \
        int expect_status = (call);                                                         \
        if (expect_status != (expected)) {                                                  \
            fprintf(stderr, "%s:%d: %s: %s, not %s (%s)\n", __FILE__, __LINE__, #call,      \
                    ticketing_status_name(expect_status), ticketing_status_name(expected),  \
                    ticketing_last_message());                                              \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

#define OK(call) EXPECT(TICKETING_OK, call)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void pause_ms(long ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&time, NULL);
}

/* A broker of the servers in argv. */
static ticketing_broker open_broker(int count, char **addresses)
{
    ticketing_broker_options options = TICKETING_BROKER_OPTIONS_INIT;
    ticketing_broker broker;
    options.addresses = (const char *const *)addresses;
    options.address_count = (size_t)count;
    OK(ticketing_broker_open(&options, &broker));
    OK(ticketing_wait_ready(broker, 20));
    return broker;
}

/* What a callback was told. */
typedef struct told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int calls;
    int status;
    ticketing_ticket ticket;
} told;

#define TOLD_INIT { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, -1, { 0 } }

static void tell(void *user_data, int status, ticketing_ticket ticket)
{
    told *to = user_data;
    pthread_mutex_lock(&to->lock);
    to->calls++;
    to->status = status;
    to->ticket = ticket;
    pthread_cond_broadcast(&to->changed);
    pthread_mutex_unlock(&to->lock);
}

/* Waits for the one call of a callback. */
static int outcome(told *of)
{
    int status;
    pthread_mutex_lock(&of->lock);
    while (of->calls == 0) {
        pthread_cond_wait(&of->changed, &of->lock);
    }
    CHECK(of->calls == 1);
    status = of->status;
    pthread_mutex_unlock(&of->lock);
    return status;
}

/* Waits until so many wait in the queue of a started acquire. */
static void wait_for_waiters(ticketing_call call, uint32_t wanted)
{
    uint32_t place, waiters;
    double until = now() + 20;
    do {
        CHECK(now() < until);
        OK(ticketing_place(call, &place, &waiters));
    } while (place == 0 || waiters != wanted);
    CHECK(place <= wanted);
}

#endif
