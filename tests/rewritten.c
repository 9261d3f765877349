/*
 * rewritten SHARED X Y OPENS: a writer writes the bytes of model X and of model Y over the file SHARED, by
 * turns and without a pause, while SHARED is opened OPENS times, beside the intact X or Y each time. SHARED
 * may fail as changed; X and Y must open, and give the logits they gave alone. Says how often which happened.
 */
#include "npu.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct bytes {
	char *at;
	size_t size;
};

struct writer {
	const char *path;
	struct bytes models[2];
	atomic_bool stop;
};

static void die(const npu_client *c, const char *what)
{
	fprintf(stderr, "rewritten: %s: %s\n", what, c ? npu_error_text(c) : strerror(0));
	exit(1);
}

static struct bytes read_whole(const char *path)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) != 0)
		die(NULL, path);
	struct bytes b = {malloc((size_t)st.st_size), (size_t)st.st_size};
	if (!b.at || read(fd, b.at, b.size) != (ssize_t)b.size)
		die(NULL, path);
	close(fd);
	return b;
}

static void *write_by_turns(void *arg)
{
	struct writer *w = arg;
	int fd = open(w->path, O_WRONLY);
	for (unsigned i = 0; fd >= 0 && !atomic_load(&w->stop); i++) {
		const struct bytes *b = &w->models[i % 2];
		if (pwrite(fd, b->at, b->size, 0) != (ssize_t)b->size)
			die(NULL, w->path);
	}
	close(fd);
	return NULL;
}

struct opening {
	npu_head *head;
	struct npu_head_info info;
	int result;
	bool done;
};

static void on_open(void *arg, npu_call *call, int result)
{
	struct opening *o = arg;
	(void)call;
	o->result = result;
	o->done = true;
}

/* The logits of one row of ones through the head. */
static float *logits_of(npu_client *c, npu_head *head, const struct npu_head_info *info)
{
	float *x = malloc(info->h * sizeof *x), *logits = malloc(info->nv * sizeof *logits);
	if (!x || !logits)
		die(NULL, "memory");
	for (uint32_t k = 0; k < info->h; k++)
		x[k] = 1.0f;
	if (npu_head_logits(head, x, 1, logits, NULL))
		die(c, "logits");
	free(x);
	return logits;
}

int main(int argc, char **argv)
{
	npu_client *c;
	float *expected[2];
	struct npu_head_info info;
	unsigned opens = argc == 5 ? (unsigned)atoi(argv[4]) : 0, changed = 0, packed = 0;
	if (!opens)
		return 2;
	struct writer w = {argv[1], {read_whole(argv[2]), read_whole(argv[3])}, false};
	if (npu_connect(&c, NULL, "rewritten"))
		die(c, "connect");
	for (int i = 0; i < 2; i++) {
		npu_head *head;
		if (npu_head_open(c, argv[2 + i], NULL, &head, &info))
			die(c, argv[2 + i]);
		expected[i] = logits_of(c, head, &info);
		npu_head_close(head);
	}

	pthread_t thread;
	if (pthread_create(&thread, NULL, write_by_turns, &w))
		die(NULL, "thread");
	for (unsigned n = 0; n < opens; n++) {
		const char *intact = argv[2 + n % 2];
		struct opening shared = {.done = false}, own = {.done = false};
		if (npu_head_open_start(c, argv[1], NULL, &shared.head, &shared.info, on_open, &shared,
					NULL) ||
		    npu_head_open_start(c, intact, NULL, &own.head, &own.info, on_open, &own, NULL))
			die(c, "open");
		while (!shared.done || !own.done)
			if (npu_dispatch(c, 60000) < 0)
				die(c, "dispatch");
		if (own.result)
			die(c, npu_error_name(own.result));
		float *logits = logits_of(c, own.head, &own.info);
		if (memcmp(logits, expected[n % 2], own.info.nv * sizeof *logits) != 0) {
			fprintf(stderr, "rewritten: open %u: %s has other logits\n", n, intact);
			return 1;
		}
		free(logits);
		if (shared.result && shared.result != NPU_E_FILE_CHANGED &&
		    shared.result != NPU_E_BAD_CONTAINER)
			die(c, npu_error_name(shared.result));
		changed += shared.result != 0;
		packed += shared.result == 0 && !shared.info.attached;
		npu_head_close(shared.head);
		npu_head_close(own.head);
	}
	atomic_store(&w.stop, true);
	pthread_join(thread, NULL);
	npu_close(c);
	printf("%u opens: the shared file had changed %u times and was packed %u times\n", opens, changed,
	       packed);
	for (int i = 0; i < 2; i++) {
		free(expected[i]);
		free(w.models[i].at);
	}
	return 0;
}
