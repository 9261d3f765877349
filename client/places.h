/*
 * places: where sockets of npud are, and whether somebody seems to listen there. Any thread; no state.
 */
#ifndef NPU_PLACES_H
#define NPU_PLACES_H

#include <stdbool.h>
#include <stddef.h>

#define PLACES_SYSTEM_SOCKET "/run/npud/npud.sock"
#define PLACES_PATH_MAX 104 /* with ".fd" and the NUL it still is a sun_path */

/* The user's place number `which`, best first, into `to`; false behind the last. "" is a place that does not
 * apply. */
bool places_user_socket(unsigned which, char *to, size_t room);

enum place {
	PLACE_LISTENS,	 /* somebody does */
	PLACE_UNCERTAIN, /* a socket, but it cannot be told whether anybody listens */
	PLACE_ABSENT,	 /* no such file */
	PLACE_STALE,	 /* a socket that nobody listens on */
	PLACE_NO_SOCKET, /* something else lies there */
	PLACE_UNTRUSTED, /* below /tmp, in a directory that another user could have made */
	PLACE_DENIED,	 /* we may not connect */
};

/* Looks without connecting to the socket itself: NNG 1.5 goes deaf when somebody connects and leaves. */
enum place places_look(const char *path);
const char *places_words(enum place place);

/* What somebody can do who may not connect there: join the group that may, or start a daemon of their own. */
void places_advice(const char *path, char *to, size_t room);

#endif
