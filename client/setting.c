#define _GNU_SOURCE 1
#include "setting.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(char *why, size_t room, const char *part, const char *what)
{
	snprintf(why, room, "%s: %s", part, what);
	return false;
}

/* A number from 1 to `most`; 0: it is none. */
static uint32_t number(const char *text, unsigned long most)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	return *text < '0' || *text > '9' || *end || n > most ? 0 : (uint32_t)n;
}

static bool set_path(struct setting *s, const char *value)
{
	static const char *const paths[] = {"auto", "host", "device", "alternate"};

	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		if (strcmp(value, paths[i]) == 0)
			snprintf(s->path, sizeof s->path, "%s", value);
	return s->path[0];
}

/* `part` is NAME=VALUE and is cut at its '='. */
static bool set(struct setting *s, char *part, char *why, size_t room)
{
	char *value = strchr(part, '=');

	if (!value)
		return refuse(why, room, part, "a setting is NAME=VALUE, as in path=device,batch=16");
	*value++ = '\0';
	if (strcmp(part, "path") == 0)
		return s->path[0] || !set_path(s, value)
			       ? refuse(why, room, part, "give auto, host, device or alternate, once")
			       : true;
	if (strcmp(part, "threads") == 0)
		return s->threads || !(s->threads = number(value, 16))
			       ? refuse(why, room, part, "give a number between 1 and 16, once")
			       : true;
	if (strcmp(part, "batch") == 0)
		return s->batch || !(s->batch = number(value, 128))
			       ? refuse(why, room, part, "give rows between 1 and 128, once")
			       : true;
	if (strcmp(part, "store") == 0) {
		bool on = strcmp(value, "on") == 0;
		if (s->store || (!on && strcmp(value, "off") != 0))
			return refuse(why, room, part, "give on or off, once");
		s->store = on ? STORE_ON : STORE_OFF;
		return true;
	}
	if (strcmp(part, "socket") == 0) {
		if (s->socket[0] || !*value)
			return refuse(why, room, part, "give the path of a daemon's socket, once");
		snprintf(s->socket, sizeof s->socket, "%s", value);
		return true;
	}
	return refuse(why, room, part,
		      "there is no such setting; path, threads, store, batch and socket are");
}

bool setting_parse(struct setting *out, const char *text, char *why, size_t room)
{
	char copy[sizeof out->text], *rest = copy, *part;

	*out = (struct setting){0};
	if (strlen(text) >= sizeof out->text) {
		snprintf(why, room, "it is longer than %zu bytes", sizeof out->text - 1);
		return false;
	}
	memcpy(out->text, text, strlen(text) + 1);
	memcpy(copy, text, strlen(text) + 1);
	while (*text && (part = strsep(&rest, ",")))
		if (!set(out, part, why, room))
			return false;
	if (out->socket[0] && (out->threads || out->batch))
		return refuse(why, room, "socket",
			      "threads and batch are the daemon's own, as its configuration has them; leave "
			      "out the socket and a daemon with these is started");
	return true;
}

bool setting_needs_daemon(const struct setting *s)
{
	return !s->socket[0] && (s->threads || s->batch || s->store);
}
