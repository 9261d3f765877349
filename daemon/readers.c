#include "readers.h"

void readers_init(struct readers *readers, uv_loop_t *loop)
{
	link_init(&readers->running);
	link_init(&readers->waiting);
	readers->loop = loop;
}

static void reading(uv_work_t *work)
{
	struct reader *r = work->data;
	r->read(r);
}

static void run_who_may(struct readers *readers);

static void on_read(uv_work_t *work, int status)
{
	struct reader *r = work->data;
	struct readers *readers = r->readers;

	(void)status;
	link_remove(&r->in_readers);
	r->done(r);
	run_who_may(readers);
}

static bool may_run(const struct readers *readers, uid_t uid)
{
	unsigned all = 0, users = 0;

	link_each(at, &readers->running)
	{
		all++;
		users += link_of(at, struct reader, in_readers)->uid == uid;
	}
	return all < READERS_MAX && users < READERS_A_USER;
}

static void run_who_may(struct readers *readers)
{
	link_each(at, &readers->waiting)
	{
		struct reader *r = link_of(at, struct reader, in_readers);
		if (!may_run(readers, r->uid))
			continue;
		link_remove(&r->in_readers);
		link_append(&readers->running, &r->in_readers);
		uv_queue_work(readers->loop, &r->work, reading, on_read);
	}
}

void reader_begin(struct reader *r, struct readers *readers, uid_t uid, void (*read)(struct reader *),
		  void (*done)(struct reader *))
{
	r->readers = readers;
	r->uid = uid;
	r->read = read;
	r->done = done;
	r->work.data = r;
	link_append(&readers->waiting, &r->in_readers);
	run_who_may(readers);
}
