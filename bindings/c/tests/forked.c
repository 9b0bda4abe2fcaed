/* A child gets a clear status at once, and a broker of its own: forked ADDRESS... */
#include "check.h"

#include <sys/wait.h>

static ticketing_broker broker;
static volatile int stop;

/* Keeps the tables of handles busy, so that a fork finds their locks held. */
static void *busy(void *nothing)
{
    while (!stop) {
        ticketing_ticket ticket;
        char key[32];
        sprintf(key, "busy:%p", (void *)&ticket);
        OK(ticketing_acquire(broker, key, strlen(key), NULL, &ticket));
        OK(ticketing_release(ticket));
    }
    return nothing;
}

static int child(ticketing_ticket held, ticketing_call call, int count, char **addresses)
{
    ticketing_broker own;
    ticketing_ticket ticket;
    ticketing_grant grant = TICKETING_GRANT_INIT;
    alarm(30); /* a hang is a failure */
    EXPECT(TICKETING_FORKED, ticketing_acquire(broker, "k", 1, NULL, &ticket));
    EXPECT(TICKETING_FORKED, ticketing_acquire_start(broker, "k", 1, NULL, tell, NULL, NULL));
    EXPECT(TICKETING_FORKED, ticketing_release(held));
    EXPECT(TICKETING_FORKED, ticketing_ticket_info(held, &grant));
    EXPECT(TICKETING_FORKED, ticketing_ticket_free(held));
    EXPECT(TICKETING_FORKED, ticketing_cancel(call));
    EXPECT(TICKETING_FORKED, ticketing_broker_close(broker));
    EXPECT(TICKETING_FORKED, ticketing_broker_free(broker));
    own = open_broker(count, addresses);
    EXPECT(TICKETING_TIMEOUT, ticketing_try_acquire(own, "held", 4, 10, &ticket));
    OK(ticketing_acquire(own, "child", 5, NULL, &ticket));
    OK(ticketing_release(ticket));
    EXPECT(TICKETING_FORKED, ticketing_release(held));
    EXPECT(TICKETING_STALE_HANDLE, ticketing_release(ticket));
    OK(ticketing_broker_free(own));
    return 0;
}

int main(int argc, char **argv)
{
    enum { THREADS = 4, FORKS = 20 };
    pthread_t threads[THREADS];
    ticketing_ticket held;
    ticketing_call call;
    told told = TOLD_INIT;
    int i, status;
    broker = open_broker(argc - 1, argv + 1);
    OK(ticketing_acquire(broker, "held", 4, NULL, &held));
    OK(ticketing_acquire_start(broker, "held", 4, NULL, tell, &told, &call));
    wait_for_waiters(call, 1);
    for (i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, busy, NULL);
    }
    for (i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            _exit(child(held, call, argc - 1, argv + 1));
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    stop = 1;
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    /* The parent has noticed nothing. */
    OK(ticketing_release(held));
    OK(outcome(&told));
    OK(ticketing_release(told.ticket));
    OK(ticketing_broker_free(broker));
    puts("ok");
    return 0;
}
