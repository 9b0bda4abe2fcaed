/*
 * The runner of the scenario table for one case: calls come on stdin, outcomes go to stdout, and
 * the verdict to stderr. It knows no scenario and compares nothing.
 *
 * conformance start: calls are started and call back. conformance block: a thread for each call.
 */
#include "check.h"
#include "json.h"

enum { MOST = 4096 };

/* One call, by its number. */
typedef struct call {
    unsigned long id;
    char *line;
    double start;
    ticketing_broker broker;
    ticketing_ticket ticket;
    ticketing_call call;
    ticketing_uncertain uncertain;
    struct call *of;
} call;

static call calls[MOST];
static int blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    char *name;
    ticketing_broker broker;
} brokers[16];

static void put_text(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            printf("\\%c", *text);
        } else if ((unsigned char)*text < 0x20) {
            printf("\\u%04x", *text);
        } else {
            putchar(*text);
        }
    }
    putchar('"');
}

static void begin(call *of, const char *kind)
{
    double elapsed_ms = (now() - of->start) * 1000;
    pthread_mutex_lock(&lock);
    printf("{\"id\":%lu,\"elapsed_ms\":%.3f,\"kind\":\"%s\"", of->id, elapsed_ms, kind);
}

static void end(void)
{
    puts("}");
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static void reply(call *of, const char *kind)
{
    begin(of, kind);
    end();
}

static void reply_failure(call *of, int status)
{
    ticketing_error error = TICKETING_ERROR_INIT;
    OK(ticketing_last_error(&error));
    CHECK(error.status == status);
    begin(of, ticketing_status_name(status));
    printf(",\"message\":");
    put_text(error.message);
    if (error.has_owner) {
        printf(",\"owner\":\"%llu\"", (unsigned long long)error.owner);
    }
    if (error.has_token) {
        printf(",\"token\":\"%llu\"", (unsigned long long)error.token);
    }
    end();
}

static void reply_ticket(call *of)
{
    ticketing_grant grant = TICKETING_GRANT_INIT;
    int i;
    OK(ticketing_ticket_info(of->ticket, &grant));
    begin(of, "ticket");
    printf(",\"token\":\"%llu\",\"owner\":\"%llu\",\"remaining_ms\":%.6f", (unsigned long long)grant.token,
           (unsigned long long)grant.owner, grant.remaining * 1000);
    if (grant.has_domain) {
        printf(",\"domain\":\"");
        for (i = 0; i < 16; i++) {
            printf("%02x", grant.domain[i]);
        }
        putchar('"');
    }
    end();
}

/* What became of a call that gets a ticket or only ends. */
static void told_end(call *of, int status, ticketing_ticket ticket, const char *kind)
{
    if (status == TICKETING_INDETERMINATE && of->uncertain.id == 0) {
        OK(ticketing_uncertain_keep(&of->uncertain));
    }
    if (status != TICKETING_OK) {
        reply_failure(of, status);
    } else if (ticket.id != 0) {
        of->ticket = ticket;
        reply_ticket(of);
    } else {
        reply(of, kind);
    }
}

static void released(void *of, int status, ticketing_ticket ticket)
{
    CHECK(ticket.id == 0);
    told_end(of, status, ticket, "released");
}

static void granted(void *of, int status, ticketing_ticket ticket)
{
    CHECK((status == TICKETING_OK) == (ticket.id != 0));
    told_end(of, status, ticket, NULL);
}

static double number(const call *of, const char *name, double without)
{
    const char *value = json_get(of->line, name);
    return value == NULL ? without : strtod(value + (*value == '"'), NULL);
}

static char *text_of(const char *object, const char *name)
{
    const char *value = json_get(object, name);
    return value == NULL ? NULL : json_text(value, NULL);
}

/* The bytes of the key, and no NUL: a read beyond them is seen by the checkers of memory. */
static char *key_of(const call *of, size_t *len)
{
    const char *hex = json_get(of->line, "key_hex");
    char *text = json_text(hex != NULL ? hex : json_get(of->line, "key"), len), *key;
    size_t i;
    if (hex != NULL) {
        *len /= 2;
        for (i = 0; i < *len; i++) {
            text[i] = (char)json_hex(text + 2 * i, 2);
        }
    }
    key = malloc(*len > 0 ? *len : 1);
    memcpy(key, text, *len);
    free(text);
    return key;
}

static void open_one(call *of)
{
    ticketing_broker_options options = TICKETING_BROKER_OPTIONS_INIT;
    const char *list = json_get(of->line, "addresses"), *tls = json_get(of->line, "tls"), *verify, *requests;
    char *addresses[16], *token, *domain;
    ticketing_broker broker;
    int status, i;
    for (list++; *list != ']'; list += *list == ',') {
        CHECK(options.address_count < 16);
        addresses[options.address_count++] = json_text(list, NULL);
        list = json_end(list);
    }
    options.addresses = (const char *const *)addresses;
    token = text_of(of->line, "token");
    options.token = (const uint8_t *)token;
    options.token_len = token == NULL ? 0 : strlen(token);
    if (tls != NULL) {
        verify = json_get(tls, "verify");
        options.tls = 1;
        options.ca_file = text_of(tls, "ca_file");
        options.ca_pem = (const uint8_t *)text_of(tls, "ca_pem");
        options.ca_pem_len = options.ca_pem == NULL ? 0 : strlen((const char *)options.ca_pem);
        options.server_name = text_of(tls, "server_name");
        options.dangerously_accept_any_certificate = verify != NULL && *verify == 'f';
    }
    domain = text_of(of->line, "expect_domain");
    if (domain != NULL) {
        options.has_expect_domain = 1;
        for (i = 0; i < 16; i++) {
            options.expect_domain[i] = (uint8_t)json_hex(domain + 2 * i, 2);
        }
    }
    requests = json_get(of->line, "max_pending");
    options.max_pending = requests == NULL ? 0 : (size_t)strtoul(requests, NULL, 10);
    status = ticketing_broker_open(&options, &broker);
    while (options.address_count > 0) {
        free(addresses[--options.address_count]);
    }
    free(token);
    free(domain);
    free((char *)options.ca_file);
    free((uint8_t *)options.ca_pem);
    free((char *)options.server_name);
    if (status != TICKETING_OK) {
        reply_failure(of, status);
        return;
    }
    for (i = 0; brokers[i].name != NULL; i++) {
    }
    CHECK(i < 15);
    brokers[i].name = text_of(of->line, "broker");
    brokers[i].broker = broker;
    reply(of, "done");
}

static void connections(call *of)
{
    char text[16384], *domain, *rest;
    size_t length;
    OK(ticketing_connections(of->broker, text, sizeof text, &length));
    /* The table does not ask for the domain. */
    while ((domain = strstr(text, "\"domain\":")) != NULL) {
        rest = (char *)json_end(domain + strlen("\"domain\":"));
        rest += *rest == ',';
        memmove(domain, rest, strlen(rest) + 1);
    }
    begin(of, "connections");
    printf(",\"connections\":%s", text);
    end();
}

/* What waits, on a thread of its own. */
static void *block(void *argument)
{
    call *of = argument;
    const char *kind = json_get(of->line, "call");
    ticketing_ticket ticket = { 0 };
    ticketing_acquire_options options = TICKETING_ACQUIRE_OPTIONS_INIT;
    size_t len = 0;
    char *key = json_get(of->line, "key") || json_get(of->line, "key_hex") ? key_of(of, &len) : NULL;
    options.wait = number(of, "wait", 0);
    options.lease = number(of, "lease", 0);
    options.min_remaining = number(of, "min_remaining", 0);
    if (strncmp(kind, "\"acquire", 8) == 0) {
        told_end(of, ticketing_acquire(of->broker, key, len, &options, &ticket), ticket, NULL);
    } else if (strncmp(kind, "\"try", 4) == 0) {
        told_end(of, ticketing_try_acquire(of->broker, key, len, options.lease, &ticket), ticket, NULL);
    } else if (strncmp(kind, "\"release\"", 9) == 0) {
        told_end(of, ticketing_release(of->of->ticket), ticket, "released");
    } else if (strncmp(kind, "\"release_token", 14) == 0) {
        uint64_t token = strtoull(json_get(of->line, "token") + 1, NULL, 10);
        told_end(of, ticketing_release_token(of->broker, key, len, token), ticket, "released");
    } else if (strncmp(kind, "\"verify", 7) == 0) {
        of->uncertain = of->of->uncertain;
        told_end(of, ticketing_verify(of->of->uncertain, number(of, "timeout", 0), &ticket), ticket, NULL);
    } else if (strncmp(kind, "\"wait_ready", 11) == 0) {
        told_end(of, ticketing_wait_ready(of->broker, number(of, "timeout", 0)), ticket, "ready");
    } else if (strncmp(kind, "\"close", 6) == 0) {
        told_end(of, ticketing_broker_close(of->broker), ticket, "done");
    } else {
        uint32_t place, waiters;
        int status = ticketing_place(of->of->call, &place, &waiters);
        CHECK(strncmp(kind, "\"place", 6) == 0);
        if (status != TICKETING_OK) {
            reply_failure(of, status);
        } else {
            begin(of, "place");
            printf(",\"place\":%u,\"waiters\":%u", place, waiters);
            end();
        }
    }
    free(key);
    return NULL;
}

static void on_a_thread(call *of)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, block, of) == 0);
    pthread_detach(thread);
}

/* What can be started, in the order in which it comes. */
static int begin_call(call *of, const char *kind)
{
    ticketing_acquire_options options = TICKETING_ACQUIRE_OPTIONS_INIT;
    size_t len = 0;
    char *key = json_get(of->line, "key") || json_get(of->line, "key_hex") ? key_of(of, &len) : NULL;
    int status;
    options.wait = number(of, "wait", 0);
    options.lease = number(of, "lease", 0);
    options.min_remaining = number(of, "min_remaining", 0);
    if (strncmp(kind, "\"acquire", 8) == 0 || strncmp(kind, "\"try", 4) == 0) {
        status = ticketing_acquire_start(of->broker, key, len, &options, granted, of, &of->call);
    } else if (strncmp(kind, "\"release\"", 9) == 0) {
        status = ticketing_release_start(of->of->ticket, released, of, NULL);
    } else if (strncmp(kind, "\"release_token", 14) == 0) {
        uint64_t token = strtoull(json_get(of->line, "token") + 1, NULL, 10);
        status = ticketing_release_token_start(of->broker, key, len, token, released, of, NULL);
    } else if (strncmp(kind, "\"verify", 7) == 0) {
        of->uncertain = of->of->uncertain;
        status = ticketing_verify_start(of->uncertain, number(of, "timeout", 0), granted, of, NULL);
    } else {
        free(key);
        return 0;
    }
    free(key);
    if (status != TICKETING_OK) {
        reply_failure(of, status);
    }
    return 1;
}

static void call_one(call *of)
{
    const char *kind = json_get(of->line, "call");
    char *name = text_of(of->line, "broker");
    int i;
    for (i = 0; name != NULL && brokers[i].name != NULL; i++) {
        if (strcmp(name, brokers[i].name) == 0) {
            of->broker = brokers[i].broker;
        }
    }
    free(name);
    if (strncmp(kind, "\"broker\"", 8) == 0) {
        open_one(of);
    } else if (strncmp(kind, "\"connections", 12) == 0) {
        connections(of);
    } else if (strncmp(kind, "\"drop", 5) == 0) {
        ticketing_ticket_free(of->of->ticket);
        reply(of, "done");
    } else if (strncmp(kind, "\"detach", 7) == 0) {
        ticketing_grant grant = TICKETING_GRANT_INIT;
        OK(ticketing_ticket_detach(of->of->ticket, &grant));
        reply(of, "done");
    } else if (strncmp(kind, "\"remaining", 10) == 0) {
        ticketing_grant grant = TICKETING_GRANT_INIT;
        OK(ticketing_ticket_info(of->of->ticket, &grant));
        begin(of, "remaining");
        printf(",\"remaining_ms\":%.6f", grant.remaining * 1000);
        end();
    } else if (strncmp(kind, "\"cancel", 7) == 0) {
        if (blocks) {
            reply(of, "inexpressible");
        } else {
            ticketing_cancel(of->of->call); /* it may be over */
            reply(of, "done");
        }
    } else if (blocks && strncmp(kind, "\"place", 6) == 0) {
        reply(of, "inexpressible");
    } else if (blocks || !begin_call(of, kind)) {
        on_a_thread(of);
    }
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    int i;
    blocks = argc > 1 && strcmp(argv[1], "block") == 0;
    while (getline(&line, &room, stdin) > 0) {
        call *of;
        unsigned long id;
        if (json_get(line, "end") != NULL) {
            fputs(line, stderr);
            break;
        }
        id = strtoul(json_get(line, "id"), NULL, 10);
        CHECK(id < MOST);
        of = &calls[id];
        of->id = id;
        of->line = strdup(line);
        of->of = json_get(line, "of") ? &calls[strtoul(json_get(line, "of"), NULL, 10)] : NULL;
        of->start = now();
        call_one(of);
    }
    for (i = 0; brokers[i].name != NULL; i++) {
        ticketing_broker_free(brokers[i].broker);
    }
    /* Threads of calls that nobody waited for may still look at theirs. */
    fflush(NULL);
    _exit(0);
}
