/*
 * Reading of users' files, on libuv's threads. A file may be read slowly or without an end in sight (a disk
 * that hangs, a sparse terabyte), and threads are few: each user has some of them at most, whatever the user
 * opens, and whatever else runs on libuv's threads has its own. Loop thread only, but for `read`.
 */
#ifndef NPUD_READERS_H
#define NPUD_READERS_H

#include "link.h"
#include <sys/types.h>
#include <uv.h>

#define READERS_MAX 16
#define READERS_A_USER 4
#define READERS_THREADS                                                                     \
	"18" /* what UV_THREADPOOL_SIZE has to be: two are for what reads no files of users \
	      */

struct readers {
	struct link running, waiting; /* in the order they began to wait */
	uv_loop_t *loop;
};

/* Embedded in what wants to read. */
struct reader {
	struct link in_readers;
	uv_work_t work;
	struct readers *readers;
	uid_t uid;
	void (*read)(struct reader *r); /* on a thread */
	void (*done)(struct reader *r); /* on the loop; may begin it anew, or free it */
};

void readers_init(struct readers *readers, uv_loop_t *loop);

/* `read` is called once a thread is free for `uid`, then `done`, both always. */
void reader_begin(struct reader *r, struct readers *readers, uid_t uid, void (*read)(struct reader *),
		  void (*done)(struct reader *));

#endif
