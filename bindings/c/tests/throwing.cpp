// An exception that leaves a callback ends the process, and unwinds nothing of the library.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "ticketing.h"

static void throws(void *, int, ticketing_ticket)
{
    throw std::runtime_error("out of a callback");
}

int main(int argc, char **argv)
{
    ticketing_broker_options options = TICKETING_BROKER_OPTIONS_INIT;
    ticketing_broker broker;
    options.addresses = argv + 1;
    options.address_count = static_cast<std::size_t>(argc - 1);
    if (ticketing_broker_open(&options, &broker) != TICKETING_OK) {
        return 2;
    }
    ticketing_acquire_start(broker, "k", 1, NULL, throws, NULL, NULL);
    ticketing_broker_free(broker);
    std::puts("the exception was lost");
    return 0;
}
