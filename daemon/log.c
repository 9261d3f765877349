#include "log.h"
#include "plain.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void log_line(const char *what, uint64_t id, const char *format, ...)
{
	char text[1024], when[32], who[32] = "";
	va_list args;
	time_t now = time(NULL);
	struct tm tm;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	strftime(when, sizeof when, "%FT%TZ", gmtime_r(&now, &tm));
	if (id)
		snprintf(who, sizeof who, " %llu", (unsigned long long)id);
	plain_line(stderr, "%s %s%s: %s", when, what, who, text);
}
