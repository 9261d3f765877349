/*
 * A whole server that nobody can connect to: NNG's side of it (listen.h) is replaced by calls of the fuzz
 * target, and every answer is looked at. Made at the first use, in a directory of its own.
 */
#ifndef NPUD_INDOORS_H
#define NPUD_INDOORS_H

#include "server.h"
#include "session.h"

struct server *indoors(void);
/* A peer of another user than the daemon's, or of the daemon's, who did not say hello yet. */
struct session *indoors_session(bool stranger);
/* A message of its arrives. Aborts where the answer is not one of the protocol, or comes twice. */
void indoors_ask(struct session *s, const void *bytes, size_t size);
/* Lets the loop do what it can now. */
void indoors_turn(void);
/* Its connection ends. Aborts unless all it held and asked has gone when nothing is under way any more. */
void indoors_close(struct session *s);

#endif
