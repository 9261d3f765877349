/*
 * Resident heads, and the handles by which sessions hold them. A head is named by what it holds: content
 * hash, kd, T, layout. Loop thread only; loading happens on worker threads (loader.h). Two that open the
 * same head share one load; should the file that is packed change meanwhile, another's takes its place. A
 * head goes when its last handle and its last pass have gone.
 */
#ifndef NPUD_HEADS_H
#define NPUD_HEADS_H

#include "loader.h"
#include "request.h"

struct job;

struct head {
	struct link in_heads; /* server.heads; in no list once it failed or nobody wants it */
	struct server *server;
	uint64_t id;
	enum { HEAD_LOADING, HEAD_READY, HEAD_FAILED } state;
	unsigned char hash[16];
	struct geometry geometry;
	struct image image; /* when ready */
	char label[129], tensor[512], type[32];
	enum head_reason why;
	uint64_t nonfinite, rows;
	unsigned refs, users;  /* users: handles; refs: handles and passes */
	struct job *job;       /* while loading */
	struct handle *packer; /* whose file is packed; NULL once that was closed */
	struct err err;	       /* when failed */
};

struct handle {
	struct link in_session; /* session.handles */
	struct session *session;
	uint64_t number;
	struct head *head;  /* referenced; NULL while its content is not known */
	struct job *job;    /* while its content is not known */
	struct load *spare; /* its own file, named, while the head is packed from another's */
	struct err err;	    /* why it will never have a head */
	struct link waiters;
	bool attached;
	char note[160]; /* of the matrix it opened: another handle of this head may have been told more */
	uint64_t opened_ns;
	double seconds; /* from open to ready */
};

void head_release(struct head *h);
void handle_close(struct handle *h);
/* Answers a waiting request with how far its handle is. */
void handle_answer(struct request *r);
void head_answer_run(struct request *r);
/* Bytes of all resident heads, those that load included. */
uint64_t heads_bytes(const struct server *server);
/* Closes every handle, so that every load ends. */
void heads_stop(struct server *server);

#endif
