#include "writer.h"
#include "err.h"
#include <string.h>
#include <sys/resource.h>

#define NICE 10 /* what answers somebody goes first, but a busy machine does not stop it */

static void work(void *arg)
{
	struct writer *w = arg;

	setpriority(PRIO_PROCESS, 0, NICE); /* on Linux: of this thread */
	uv_mutex_lock(&w->lock);
	for (;;) {
		while ((!w->now || w->ended) && !w->leave)
			uv_cond_wait(&w->begin, &w->lock);
		if (w->leave)
			break;
		uv_mutex_unlock(&w->lock);
		w->now->work(w->now, &w->stop);
		uv_mutex_lock(&w->lock);
		w->ended = true;
		uv_async_send(&w->wake);
	}
	uv_mutex_unlock(&w->lock);
}

/* Hands the next job to the thread, if it has none. */
static void hand_on(struct writer *w)
{
	if (w->now || link_empty(&w->waiting))
		return;
	struct writer_job *j = link_of(w->waiting.next, struct writer_job, in_queue);
	link_remove(&j->in_queue);
	if (j->prepare)
		j->prepare(j);
	uv_mutex_lock(&w->lock);
	w->now = j;
	w->ended = false;
	uv_cond_signal(&w->begin);
	uv_mutex_unlock(&w->lock);
}

static void on_wake(uv_async_t *wake)
{
	struct writer *w = wake->data;
	struct writer_job *j = NULL;

	uv_mutex_lock(&w->lock);
	if (w->ended) {
		j = w->now;
		w->now = NULL;
		w->ended = false;
	}
	uv_mutex_unlock(&w->lock);
	if (!j)
		return;
	j->done(j);
	hand_on(w);
}

int writer_init(struct writer *w, uv_loop_t *loop)
{
	memset(w, 0, sizeof *w);
	link_init(&w->waiting);
	w->wake.data = w;
	if (uv_mutex_init(&w->lock) || uv_cond_init(&w->begin) || uv_async_init(loop, &w->wake, on_wake) ||
	    uv_thread_create(&w->thread, work, w))
		return NPU_E_NO_MEMORY;
	return 0;
}

void writer_add(struct writer *w, struct writer_job *job)
{
	link_append(&w->waiting, &job->in_queue);
	hand_on(w);
}

bool writer_idle(const struct writer *w)
{
	return !w->now && link_empty(&w->waiting);
}

void writer_fini(struct writer *w)
{
	atomic_store(&w->stop, true);
	uv_mutex_lock(&w->lock);
	w->leave = true;
	uv_cond_signal(&w->begin);
	uv_mutex_unlock(&w->lock);
	uv_thread_join(&w->thread);
	if (w->now)
		w->now->done(w->now);
	w->now = NULL;
	link_each(at, &w->waiting)
	{
		struct writer_job *j = link_of(at, struct writer_job, in_queue);
		link_remove(&j->in_queue);
		j->done(j);
	}
	uv_close((uv_handle_t *)&w->wake, NULL);
	uv_cond_destroy(&w->begin);
	uv_mutex_destroy(&w->lock);
}
