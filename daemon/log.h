/* One line an event on stderr, with the time; any thread. */
#ifndef NPUD_LOG_H
#define NPUD_LOG_H

#include <stdint.h>

/* `what` and `id` say whom it concerns ("session", 7); id 0 is left out. */
void log_line(const char *what, uint64_t id, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
