/*
 * One connected client and all it holds: requests, files, heads. Loop thread only. A session is made when
 * the kernel has told who the peer is and ends in session_close, the one way for goodbye, crash and kick.
 */
#ifndef NPUD_SESSION_H
#define NPUD_SESSION_H

#include "events.h"
#include "server.h"

struct listing;
struct upload;

struct session {
	struct link in_sessions; /* server.sessions */
	struct server *server;
	struct peer peer;
	uint64_t number;
	unsigned char token[16]; /* shows on the side socket who it is */
	char name[65], version[33];
	bool ready;		      /* has said hello */
	bool ended;		      /* is being disconnected: what still comes is dropped */
	struct reply_client *replies; /* of its client; NULL before hello */
	uint64_t since_ms, requests_seen, next_handle;
	struct event_ring events;
	struct batch_client rows; /* that wait: under the executor's lock */
	struct link requests, files, handles, tickets;
	uint64_t under, under_number; /* the ticket it works under; 0: none */
	struct listing *listing;      /* of the tensors of one of its models; NULL: none */
	unsigned in_flight, file_count, handle_count;
};

struct file {
	struct link in_session; /* session.files */
	uint64_t number;
	uint64_t model; /* number of the first file of its model */
	int fd;
	struct upload *upload; /* held; NULL: it was passed */
	char name[129];	       /* printable */
};

int session_new(struct session **out, struct server *server, struct peer peer);
/* Drops its requests unanswered, closes files and heads, frees it. */
void session_close(struct session *s);

/* Ends its connection, and session_close follows; nothing where that is under way. */
void session_end(struct session *s);

struct session *session_of_number(struct server *server, uint64_t number);
struct session *session_of_pipe(struct server *server, uint32_t pipe);
/* The session of a token, if it belongs to `uid` and is not being ended. */
struct session *session_of_token(struct server *server, const void *token, size_t size, uid_t uid);

/*
 * Takes a regular file that is open for reading only (the session's on success), `of` the model that an
 * earlier file began, or 0: the first of a model. NO_SUCH_HANDLE, BUSY.
 */
int session_add_file(struct session *s, int fd, const char *name, size_t name_size, uint64_t of,
		     uint64_t *number, struct err *err);
/* The same for one that is to be uploaded, in `size` bytes; what upload_new says too. */
int session_add_upload(struct session *s, const char *name, size_t name_size, uint64_t of, uint64_t size,
		       uint64_t *number, struct err *err);
struct source;
/* All files of the model that `file` belongs to, in the order in which they were passed; the source's own
 * descriptors. NO_MEMORY, IO where there are no descriptors left, BAD_VALUE while one is being uploaded. */
int session_source(struct session *s, const struct file *file, struct source *out, struct err *err);
struct file *session_file(struct session *s, uint64_t number); /* NULL: none */
/* The same, for a request. NO_SUCH_HANDLE. */
int session_find_file(struct file **out, struct session *s, uint64_t number, struct err *err);
/* Closes the file; the first of a model takes the others along. */
void file_close(struct session *s, struct file *f);

#endif
