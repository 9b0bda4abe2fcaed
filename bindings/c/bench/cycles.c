/*
 * How fast locks move from C: cycles contended|own-key THREADS CYCLES ADDRESS...
 *
 * The same workloads, the same check that it was a lock, and the same JSON as `ticketing bench --json`;
 * a thread where that has a task.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ticketing.h>

enum { CONTENDED_KEYS = 32, VISITS_A_PAUSE = 16 };

static ticketing_broker broker;
static long keys, cycles, next_cycle, errors;
static volatile long *counters;
static int64_t *times_ns;
static char first_error[512];

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int cycle(long number)
{
    static const ticketing_acquire_options options = TICKETING_ACQUIRE_OPTIONS_INIT;
    long key = number % keys, seen;
    ticketing_ticket ticket;
    char name[64];
    int len = snprintf(name, sizeof name, "bench:%ld:%ld", (long)getpid(), key);
    int status = ticketing_acquire(broker, name, (size_t)len, &options, &ticket);
    if (status != TICKETING_OK) {
        return status;
    }
    /* Loses additions as soon as two are inside at once. */
    seen = counters[key];
    if (number / keys % VISITS_A_PAUSE == 0) {
        sched_yield();
    }
    counters[key] = seen + 1;
    return ticketing_release(ticket);
}

static void *run(void *nothing)
{
    long number;
    while ((number = __atomic_fetch_add(&next_cycle, 1, __ATOMIC_RELAXED)) < cycles) {
        int64_t start = now_ns();
        if (cycle(number) != TICKETING_OK) {
            if (__atomic_fetch_add(&errors, 1, __ATOMIC_RELAXED) == 0) {
                snprintf(first_error, sizeof first_error, "%s", ticketing_last_message());
            }
            __atomic_store_n(&next_cycle, cycles, __ATOMIC_RELAXED);
            break;
        }
        times_ns[number] = now_ns() - start;
    }
    return nothing;
}

static int by_time(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    ticketing_broker_options options = TICKETING_BROKER_OPTIONS_INIT;
    long threads, i, done, counted = 0, violations;
    pthread_t *ids;
    int64_t start;
    double secs;
    if (argc < 5) {
        fprintf(stderr, "usage: %s contended|own-key THREADS CYCLES ADDRESS...\n", argv[0]);
        return 2;
    }
    threads = atol(argv[2]);
    cycles = atol(argv[3]);
    keys = strcmp(argv[1], "own-key") == 0 ? threads : CONTENDED_KEYS;
    options.addresses = (const char *const *)argv + 4;
    options.address_count = (size_t)argc - 4;
    if (ticketing_broker_open(&options, &broker) != TICKETING_OK || ticketing_wait_ready(broker, 10) != TICKETING_OK) {
        fprintf(stderr, "%s\n", ticketing_last_message());
        return 1;
    }
    ids = calloc((size_t)threads, sizeof *ids);
    counters = calloc((size_t)keys, sizeof *counters);
    times_ns = calloc((size_t)cycles, sizeof *times_ns);
    start = now_ns();
    for (i = 0; i < threads; i++) {
        if (pthread_create(&ids[i], NULL, run, NULL) != 0) {
            fprintf(stderr, "thread %ld cannot be started\n", i);
            return 1;
        }
    }
    for (i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    secs = (double)(now_ns() - start) / 1e9;
    ticketing_broker_free(broker);

    for (i = 0; i < keys; i++) {
        counted += counters[i];
    }
    qsort(times_ns, (size_t)cycles, sizeof *times_ns, by_time);
    /* Those that were not completed are zero, and first. */
    for (done = cycles; done > 0 && times_ns[cycles - done] == 0; done--) {
    }
    violations = done > counted ? done - counted : 0;
#define QUANTILE(q) (done == 0 ? 0.0 : (double)times_ns[cycles - done + (long)((double)(done - 1) * (q))] / 1000)
    printf("{\"workload\":\"%s\",\"tasks\":%ld,\"keys\":%ld,\"cycles\":%ld,\"secs\":%.6f,\"cycles_per_sec\":%.1f,"
           "\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,\"errors\":%ld,\"error\":%s,\"violations\":%ld}\n",
           argv[1], threads, keys, done, secs, (double)done / secs, QUANTILE(0.5), QUANTILE(0.99), QUANTILE(1.0),
           errors, errors == 0 ? "null" : "\"told on stderr\"", violations);
    if (errors != 0) {
        fprintf(stderr, "%s\n", first_error);
    }
    return errors == 0 && violations == 0 ? 0 : 1;
}
