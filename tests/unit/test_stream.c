#include "stream.h"
#include <criterion/criterion.h>
#include <nng/nng.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef void transfer(nng_stream *, nng_aio *);

static atomic_uint called;

static void on_called(void *arg)
{
	(void)arg;
	atomic_fetch_add(&called, 1);
}

static void wait_for_calls(unsigned n)
{
	for (int i = 0; i < 5000 && atomic_load(&called) < n; i++)
		usleep(1000);
	usleep(10000); /* one too many would come now */
	cr_assert_eq(atomic_load(&called), n);
}

static nng_stream *connected(const char *url, nng_stream_listener **listener, nng_stream_dialer **dialer)
{
	nng_aio *aio;
	cr_assert_eq(nng_stream_listener_alloc(listener, url), 0);
	cr_assert_eq(nng_stream_listener_listen(*listener), 0);
	cr_assert_eq(nng_stream_dialer_alloc(dialer, url), 0);
	cr_assert_eq(nng_aio_alloc(&aio, NULL, NULL), 0);
	nng_stream_dialer_dial(*dialer, aio);
	nng_aio_wait(aio);
	cr_assert_eq(nng_aio_result(aio), 0);
	nng_stream *stream = nng_aio_get_output(aio, 0);
	nng_aio_free(aio);
	return stream;
}

/* What NNG's transport does when a pipe is closed between the two parts of a message. */
Test(stream, a_transfer_that_is_begun_after_the_stop_is_ended_once_and_not_forgotten)
{
	transfer *const both[] = {nng_stream_recv, nng_stream_send};
	char place[] = "/tmp/npud-stream.XXXXXX", url[64], byte = 0;
	nng_stream_listener *listener;
	nng_stream_dialer *dialer;
	nng_iov iov = {&byte, 1};

	cr_assert(mkdtemp(place));
	snprintf(url, sizeof url, "ipc://%s/s", place);
	stream_init();
	nng_stream *stream = connected(url, &listener, &dialer);
	for (unsigned i = 0; i < 2; i++) {
		nng_aio *aio;
		cr_assert_eq(nng_aio_alloc(&aio, on_called, NULL), 0);
		nng_aio_set_iov(aio, 1, &iov);
		nng_aio_stop(aio);
		both[i](stream, aio);
		wait_for_calls(i + 1);
		cr_assert_eq(nng_aio_result(aio), NNG_ECLOSED);
		nng_aio_free(aio);
	}
	nng_stream_free(stream);
	nng_stream_dialer_free(dialer);
	nng_stream_listener_free(listener);
	rmdir(place);
}

Test(stream, a_transfer_of_an_open_stream_is_left_alone)
{
	char place[] = "/tmp/npud-stream.XXXXXX", url[64], byte = 0;
	nng_stream_listener *listener;
	nng_stream_dialer *dialer;
	nng_iov iov = {&byte, 1};
	nng_aio *aio;

	cr_assert(mkdtemp(place));
	snprintf(url, sizeof url, "ipc://%s/s", place);
	nng_stream *stream = connected(url, &listener, &dialer);
	cr_assert_eq(nng_aio_alloc(&aio, on_called, NULL), 0);
	nng_aio_set_iov(aio, 1, &iov);
	nng_stream_send(stream, aio);
	wait_for_calls(1);
	cr_assert_eq(nng_aio_result(aio), 0);
	nng_stream_recv(stream, aio); /* nothing comes */
	wait_for_calls(1);
	nng_aio_cancel(aio);
	wait_for_calls(2);
	cr_assert_eq(nng_aio_result(aio), NNG_ECANCELED);
	nng_aio_free(aio);
	nng_stream_free(stream);
	nng_stream_dialer_free(dialer);
	nng_stream_listener_free(listener);
	rmdir(place);
}
