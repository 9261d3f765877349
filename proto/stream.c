#include "stream.h"
#include <dlfcn.h>
#include <nng/nng.h>
#include <pthread.h>
#include <string.h>

typedef void transfer(nng_stream *, nng_aio *);

static transfer *own_send, *own_recv;
static bool forgets;

static void find(void)
{
	/* POSIX's way to take a function from dlsym. */
	*(void **)&own_send = dlsym(RTLD_NEXT, "nng_stream_send");
	*(void **)&own_recv = dlsym(RTLD_NEXT, "nng_stream_recv");
	/* A later NNG that calls back by itself must not be made to do it twice. */
	forgets = strncmp(nng_version(), "1.5.", 4) == 0;
}

void stream_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find);
}

/*
 * The transport's callbacks (after a message's length, after a part, in the greeting) submit the rest without
 * looking whether the pipe was closed meanwhile. nni_aio_begin then refuses, sets NNG_ECANCELED and calls
 * nobody back, so that the protocol's operation above stays open. A transfer that has begun never has this
 * result here: closing says NNG_ECLOSED, and the caller holds the lock that the callback takes first, so that
 * nobody can have begun the next one.
 */
static void end_forgotten(nng_aio *aio)
{
	if (forgets && nng_aio_result(aio) == NNG_ECANCELED)
		nng_aio_finish(aio, NNG_ECLOSED);
}

__attribute__((visibility("default"))) void nng_stream_send(nng_stream *stream, nng_aio *aio)
{
	stream_init();
	own_send(stream, aio);
	end_forgotten(aio);
}

__attribute__((visibility("default"))) void nng_stream_recv(nng_stream *stream, nng_aio *aio)
{
	stream_init();
	own_recv(stream, aio);
	end_forgotten(aio);
}
