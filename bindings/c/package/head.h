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
