#include "detached.h"
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#define STACK_BYTES ((size_t)256 << 10)

int detached_begin(void *(*run)(void *), void *arg)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	int r = pthread_create(&thread, &attributes, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return r;
}
