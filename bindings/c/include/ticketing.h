/*
 * ticketing.h: the Ticketing client for C and C++, FIFO distributed locks with fencing tokens.
 *
 * Handles are numbers in structs. They are looked up, never followed, and never used twice: a
 * handle that was freed, or is over, or was never given out is TICKETING_STALE_HANDLE in every
 * function, and zero is TICKETING_NULL_ARGUMENT (the functions that free ignore zero).
 *
 * Every function may be called on every thread, at the same time, with the same handles. What
 * returns int returns TICKETING_OK (0) or another TICKETING_ status. Each thread has its last
 * failure: ticketing_last_message and ticketing_last_error.
 *
 * Pointers: NULL is refused with TICKETING_NULL_ARGUMENT where something must be there. What else is
 * passed must point to as many readable (or, for results, writable) bytes as its length or its
 * size field says, and a text without a length must end with a NUL. Keys come with their length
 * and need no NUL. Results are zero until there is one. Nothing is kept of what was passed when a
 * function returns, but user_data.
 *
 * Times are seconds, as double: NaN, infinite and negative ones are TICKETING_INVALID_INPUT.
 *
 * fork: a child has neither the connections nor the thread of a broker. Handles of the parent are
 * TICKETING_FORKED there; the child opens a broker of its own.
 */

#ifndef TICKETING_H
#define TICKETING_H

/* Made by `cargo xtask docs` from bindings/c/src; do not edit. */

#include <stddef.h>
#include <stdint.h>

/* The version of this header. */
#define TICKETING_VERSION "0.1.0"

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

/* The version of this interface. It changes when programs must be compiled again. */
#define TICKETING_ABI_VERSION 1

/* All is well. */
#define TICKETING_OK 0

/* The wait ran out in the queue. The lock was not acquired. */
#define TICKETING_TIMEOUT 1

/* The server said no: it is at a limit, or does not lead now. Not acquired. */
#define TICKETING_BUSY 2

/* Nothing was sent: no usable connection in time. Not acquired. */
#define TICKETING_NOT_CONNECTED 3

/*
 * The acquire was sent and its outcome is unknown. Do not enter the critical section;
 * ticketing_uncertain_keep and ticketing_verify can clear it up.
 */
#define TICKETING_INDETERMINATE 4

/* The lock came with too little of its lease left, and was released. */
#define TICKETING_INSUFFICIENT_LEASE 5

/* Not held under that token: the lease ran out, or it was released before. */
#define TICKETING_NOT_HELD 6

/* The release was not confirmed in time. The lease will end the lock. */
#define TICKETING_RELEASE_UNCONFIRMED 7

/* The server refused the token. */
#define TICKETING_AUTH 8

/* TLS could not be set up, or the certificate is not trusted. */
#define TICKETING_TLS 9

/* The server belongs to another fencing domain than the expected one. */
#define TICKETING_WRONG_DOMAIN 10

/* An argument breaks a rule; nothing was sent. */
#define TICKETING_INVALID_INPUT 11

/* Too many requests are pending in this client; nothing was sent. */
#define TICKETING_CLIENT_CAPACITY 12

/* The broker is closed. */
#define TICKETING_CLOSED 13

/* The server does not speak the protocol extension that this needs. */
#define TICKETING_UNSUPPORTED 14

/* The acquire that was verified did not get the lock, and never will. */
#define TICKETING_NOT_ACQUIRED 30

/* The call was cancelled. A grant that comes all the same is given back. */
#define TICKETING_CANCELLED 31

/* A pointer or a handle that must be there is NULL or zero. */
#define TICKETING_NULL_ARGUMENT 32

/* The handle was freed, or is over, or never was one. */
#define TICKETING_STALE_HANDLE 33

/* A callback may not wait for a broker: all its connections would stand still. */
#define TICKETING_WOULD_DEADLOCK 34

/* The handle came into this process by fork. Open a new broker here. */
#define TICKETING_FORKED 35

/* The buffer is too small; it was told how large it must be. */
#define TICKETING_BUFFER_TOO_SMALL 36

/* A mistake in this library. If it was an acquire, its outcome is unknown. */
#define TICKETING_PANIC 37

/* A client: its connections, and the thread that serves them. */
typedef struct ticketing_broker {
    /* 0 is no broker. */
    uint64_t id;
} ticketing_broker;

/*
 * What an acquire asks for. Begin with TICKETING_ACQUIRE_OPTIONS_INIT. Times are in seconds;
 * fractions are rounded up to whole seconds, and nothing is clamped.
 */
typedef struct ticketing_acquire_options {
    /* sizeof(ticketing_acquire_options). */
    size_t size;
    /* How long to wait in the queue, up to 255 s. 0: one immediate try. Default: 30. */
    double wait;
    /* After how long the server takes the lock back by itself, 1 s to 250 s. Default: 60. */
    double lease;
    /*
     * The least time that must be left of the lease at the grant; with less, the lock is
     * released and TICKETING_INSUFFICIENT_LEASE is returned. Default: 0, any time at all.
     */
    double min_remaining;
} ticketing_acquire_options;

/* A lock that is held. */
typedef struct ticketing_ticket {
    /* 0 is no ticket. */
    uint64_t id;
} ticketing_ticket;

/*
 * Called when a call that was started is over: exactly once if starting it returned
 * TICKETING_OK, and never if it did not. Also at a close or a cancel.
 *
 * It runs on the broker's own thread, on which all its connections wait meanwhile, so it should
 * be short, and nothing in it may wait for a broker: such functions return
 * TICKETING_WOULD_DEADLOCK there. Starting, cancelling, freeing and asking a ticket are fine.
 * It may run before the function that started the call has returned. It must not throw: an
 * exception of C++ that leaves it ends the process.
 *
 * status says how the call ended; ticketing_last_message and ticketing_last_error tell more
 * if it is not TICKETING_OK. ticket is the lock if the call was to get one and status is
 * TICKETING_OK, and zero otherwise; it is the callback's to keep.
 */
typedef void (*ticketing_done)(void *user_data, int status, struct ticketing_ticket ticket);

/*
 * A call that was started and will call back. It is over when that has begun, and is not to be
 * freed.
 */
typedef struct ticketing_call {
    /* 0 is no call. */
    uint64_t id;
} ticketing_call;

/* How to reach the servers. Begin with TICKETING_BROKER_OPTIONS_INIT. */
typedef struct ticketing_broker_options {
    /* sizeof(ticketing_broker_options). */
    size_t size;
    /* TICKETING_ABI_VERSION; a library of another one refuses it. */
    unsigned int abi_version;
    /* Whether to speak TLS. 0: plain TCP. */
    int tls;
    /*
     * The servers, each as "host:port" with a NUL at its end; without a port it is 5225.
     * Name all nodes of a cluster.
     */
    const char *const *addresses;
    /* How many addresses there are. */
    size_t address_count;
    /* The secret shared with the servers. NULL: none. */
    const uint8_t *token;
    /* How many bytes it has. */
    size_t token_len;
    /* With TLS: a PEM file of the certificates to trust. NULL: the system's. */
    const char *ca_file;
    /* The same as bytes; both may be given. */
    const uint8_t *ca_pem;
    /* How many bytes it has. */
    size_t ca_pem_len;
    /* With TLS: the name that the certificate must have. NULL: the host of each address. */
    const char *server_name;
    /* Turns every check of the certificate off: anyone on the path can then hand out locks. */
    int dangerously_accept_any_certificate;
    /* Whether expect_domain is set. */
    int has_expect_domain;
    /* The one fencing domain whose servers are talked to. */
    uint8_t expect_domain[16];
    /* How many acquires, and how many releases, may be pending at once. 0: 16,384. */
    size_t max_pending;
} ticketing_broker_options;

/* What is known about the last failure of a thread. */
typedef struct ticketing_error {
    /* sizeof(ticketing_error). */
    size_t size;
    /* What the function returned, or the callback was given; 0 before any failure. */
    int status;
    /*
     * For TICKETING_NOT_HELD: whether this very release may have ended the lock, since an
     * earlier try of it lost its answer.
     */
    int may_have_released;
    /* Whether there is an owner. */
    int has_owner;
    /* Whether there is a token. */
    int has_token;
    /* The owner number of the acquire. */
    uint64_t owner;
    /* The fencing token that a release named. */
    uint64_t token;
    /* The key, or NULL. Lives until the next failure of this thread. */
    const char *key;
    /* What happened, with its causes; never NULL. Lives until the next failure of this thread. */
    const char *message;
} ticketing_error;

/* An acquire whose outcome is unknown. */
typedef struct ticketing_uncertain {
    /* 0 is none. */
    uint64_t id;
} ticketing_uncertain;

/* A lock as plain data. Set size to sizeof(ticketing_grant), as TICKETING_GRANT_INIT does. */
typedef struct ticketing_grant {
    /* sizeof(ticketing_grant). */
    size_t size;
    /* The fencing token: greater than that of every earlier grant in the domain. */
    uint64_t token;
    /* The owner number of the acquire, as the server knows it. */
    uint64_t owner;
    /* What is surely left of the lease, in seconds; 0 when nothing is. */
    double remaining;
    /* Whether the server named its fencing domain. */
    int has_domain;
    /* The fencing domain, within which tokens compare. */
    uint8_t domain[16];
    /* The lock's name, with a NUL at its end. */
    char key[129];
} ticketing_grant;

#ifdef __cplusplus
extern "C" {
#endif  /* __cplusplus */

/*
 * Waits in the queue of a key and gets its lock. options may be NULL, for the defaults. The
 * ticket is to be given to ticketing_release, ticketing_ticket_detach or ticketing_ticket_free.
 *
 * The lock is not re-entrant: its holder queues like anybody else. TICKETING_TIMEOUT,
 * TICKETING_BUSY and TICKETING_NOT_CONNECTED: certainly not acquired.
 * TICKETING_INDETERMINATE: it was sent, and the outcome is unknown; it is never sent again by
 * itself, the critical section is off limits, and ticketing_uncertain_keep and
 * ticketing_verify clear it up.
 */
int ticketing_acquire(struct ticketing_broker broker,
                      const char *key,
                      size_t key_len,
                      const struct ticketing_acquire_options *options,
                      struct ticketing_ticket *ticket);

/*
 * One immediate try that never enters the queue; TICKETING_TIMEOUT if the lock is held. Otherwise
 * as ticketing_acquire.
 */
int ticketing_try_acquire(struct ticketing_broker broker,
                          const char *key,
                          size_t key_len,
                          double lease,
                          struct ticketing_ticket *ticket);

/*
 * Starts an acquire and returns at once; done is called with its outcome. Acquires of one key
 * that are started one after the other queue in that order. call may be NULL, if it will
 * neither be cancelled nor asked for its place. The key and the options are copied.
 */
int ticketing_acquire_start(struct ticketing_broker broker,
                            const char *key,
                            size_t key_len,
                            const struct ticketing_acquire_options *options,
                            ticketing_done done,
                            void *user_data,
                            struct ticketing_call *call);

/* The version of the interface that this library has; see TICKETING_ABI_VERSION. */
unsigned int ticketing_abi_version(void);

/* The version of this library, such as "1.2.3". */
const char *ticketing_version(void);

/*
 * Opens a broker. Returns at once and connects in the background; a server that is not there
 * yet is found when it comes. To be freed with ticketing_broker_free.
 *
 * TICKETING_INVALID_INPUT for settings that make no sense, TICKETING_TLS for certificates or
 * names that cannot be used.
 */
int ticketing_broker_open(const struct ticketing_broker_options *options,
                          struct ticketing_broker *broker);

/*
 * Ends a broker in order: no acquire begins any more, those that wait end (TICKETING_CLOSED, or
 * TICKETING_INDETERMINATE where that cannot be known), releases under way are given a moment,
 * each call that was started calls back. Returns when all that is done, within 2 s and the time
 * that callbacks take. The handle stays; closing twice does no harm. Tickets that are still
 * held stay valid until their leases end, but can no longer be released here.
 *
 * In a callback it only begins that and returns at once.
 */
int ticketing_broker_close(struct ticketing_broker broker);

/*
 * Closes a broker as ticketing_broker_close does, and frees its handle. Safe while other threads
 * wait in calls of it: those end with TICKETING_CLOSED or TICKETING_INDETERMINATE. Zero is ignored.
 */
int ticketing_broker_free(struct ticketing_broker broker);

/*
 * Waits until a session is open that can be asked for locks, for up to timeout seconds.
 *
 * TICKETING_AUTH, TICKETING_TLS or TICKETING_WRONG_DOMAIN as soon as every connection fails for
 * that reason; TICKETING_NOT_CONNECTED when the time is over; TICKETING_CLOSED.
 */
int ticketing_wait_ready(struct ticketing_broker broker, double timeout);

/*
 * Writes how the connections stand, as a JSON array in the order of the addresses, with a NUL at
 * its end. Each element has "address", "open", "domain" (32 hex digits or null), "node" (a
 * decimal text or null), "leads" (true, false or null), "extension" and "last_error" (a text
 * or null).
 *
 * *length becomes its bytes without the NUL. If the buffer has no room for all of it, nothing is
 * written and TICKETING_BUFFER_TOO_SMALL is returned; a size of 0, with a buffer of NULL, asks.
 */
int ticketing_connections(struct ticketing_broker broker,
                          char *buffer,
                          size_t size,
                          size_t *length);

/*
 * Cancels a call that was started. Its callback comes all the same: with TICKETING_CANCELLED, or
 * with its outcome if it was over before. A cancelled acquire that was not sent never is, a
 * waiter leaves its queue, and a late grant is given back. A cancelled release goes on.
 * TICKETING_STALE_HANDLE if the call is over, which does no harm.
 */
int ticketing_cancel(struct ticketing_call call);

/*
 * Asks where an acquire that was started stands in the queue of its key. *place becomes 1 at the
 * head of the queue, and 0 if it is not in the queue, because it was not sent yet or is over;
 * *waiters becomes how many wait. Waits for the server's answer, up to 5 s.
 */
int ticketing_place(struct ticketing_call call, uint32_t *place, uint32_t *waiters);

/*
 * What went wrong in the last call of this thread that failed, with its causes; in a callback
 * with a status: what that is about. Never NULL; lives until the next failure of this thread.
 */
const char *ticketing_last_message(void);

/* The same with its details. Set error->size to sizeof(ticketing_error) before. */
int ticketing_last_error(struct ticketing_error *error);

/*
 * Keeps the acquire that the last failure of this thread, a TICKETING_INDETERMINATE, is
 * about, so that it can be verified. To be freed with ticketing_uncertain_free.
 */
int ticketing_uncertain_keep(struct ticketing_uncertain *uncertain);

/*
 * Gives a lock back and says whether it was still held. The handle is freed whatever comes of
 * it, unless it is TICKETING_WOULD_DEADLOCK. Tried for up to 5 s, over every connection that
 * can serve.
 *
 * TICKETING_NOT_HELD: the lease had run out, and somebody else may have had the lock since.
 * TICKETING_RELEASE_UNCONFIRMED: no word came within 5 s.
 */
int ticketing_release(struct ticketing_ticket ticket);

/*
 * Starts a release and returns at once; done is called with its outcome and no ticket. The handle
 * is freed at once, unless done is NULL. call may be NULL.
 */
int ticketing_release_start(struct ticketing_ticket ticket,
                            ticketing_done done,
                            void *user_data,
                            struct ticketing_call *call);

/*
 * Gives back the lock that was granted under exactly this token, wherever it was granted; for
 * what ticketing_ticket_detach returned. Otherwise as ticketing_release.
 */
int ticketing_release_token(struct ticketing_broker broker,
                            const char *key,
                            size_t key_len,
                            uint64_t token);

/*
 * Starts such a release and returns at once; done is called with its outcome and no ticket. call
 * may be NULL.
 */
int ticketing_release_token_start(struct ticketing_broker broker,
                                  const char *key,
                                  size_t key_len,
                                  uint64_t token,
                                  ticketing_done done,
                                  void *user_data,
                                  struct ticketing_call *call);

/* The sentence of a status, for people. Never NULL; lives as long as the process. */
const char *ticketing_strerror(int status);

/*
 * The name of a status that every language shares, such as "not_connected".
 * Never NULL; lives as long as the process.
 */
const char *ticketing_status_name(int status);

/* Tells all about a lock that is held: its token, and what is left of its lease now. */
int ticketing_ticket_info(struct ticketing_ticket ticket, struct ticketing_grant *grant);

/*
 * Turns a ticket into plain data and frees its handle. Nothing releases the lock by itself then
 * but the end of its lease: hand the data to whoever calls ticketing_release_token.
 */
int ticketing_ticket_detach(struct ticketing_ticket ticket, struct ticketing_grant *grant);

/*
 * Frees a ticket. The lock is given back in the background, as well as that can be done within
 * 5 s; the lease ends what fails. Does not wait. Zero is ignored.
 */
int ticketing_ticket_free(struct ticketing_ticket ticket);

/*
 * Asks the leading server, for up to timeout seconds, how an acquire went whose outcome is
 * unknown. TICKETING_OK: the lock is held, and *ticket is it; it ends by the lease of the
 * original acquire. TICKETING_NOT_ACQUIRED: it is not, and never will be.
 * TICKETING_INDETERMINATE: nobody could say, and it can be asked again. The handle stays.
 */
int ticketing_verify(struct ticketing_uncertain uncertain,
                     double timeout,
                     struct ticketing_ticket *ticket);

/* Starts to ask and returns at once; done is called with the outcome. call may be NULL. */
int ticketing_verify_start(struct ticketing_uncertain uncertain,
                           double timeout,
                           ticketing_done done,
                           void *user_data,
                           struct ticketing_call *call);

/*
 * Frees what ticketing_uncertain_keep kept. If the lock was granted after all, its lease ends
 * it. Zero is ignored.
 */
int ticketing_uncertain_free(struct ticketing_uncertain uncertain);

#ifdef __cplusplus
}  /* extern "C" */
#endif  /* __cplusplus */

#endif  /* TICKETING_H */
