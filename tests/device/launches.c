/*
 * launches FAULTS COUNT: launches on a device that fails or lies, from several threads, until COUNT of the
 * launches went wrong; every answer is compared with the reference, and a wrong one ends the program.
 * launches endurance COUNT: that many launches; memory and descriptors must not have grown afterwards.
 */
#include "../dice.h"
#include "launcher.h"
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What AddressSanitizer keeps back of freed memory is not memory that the device's code has lost. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "quarantine_size_mb=0:thread_local_quarantine_size_kb=0";
}

#define ROWS 8u
#define THREADS 4u

struct soak {
	const struct image *image;
	struct launcher launcher;
	uint64_t wanted;
	atomic_uint_fast64_t launches, answers, faults, seed;
};

static void *caller(void *arg)
{
	struct soak *s = arg;
	uint64_t state = atomic_fetch_add(&s->seed, 77);
	int8_t q[ROWS * LAUNCHER_K];
	int32_t acc[ROWS * LAUNCHER_ND], want[ROWS * LAUNCHER_ND];

	while (atomic_load(&s->faults) < s->wanted) {
		uint32_t t = splitmix(&state) % 2, rows = (uint32_t)(splitmix(&state) % ROWS) + 1;
		struct tile tile = image_tile(s->image, t);
		for (uint32_t i = 0; i < rows * LAUNCHER_K; i++)
			q[i] = (int8_t)(splitmix(&state) % 255 - 127);
		enum job_result r = launcher_run(&s->launcher, t, q, rows, acc);
		if (r == JOB_DONE) {
			head_ref(&tile, q, rows, LAUNCHER_ND, false, want);
			if (memcmp(acc, want, sizeof(int32_t) * rows * LAUNCHER_ND) != 0) {
				fprintf(stderr, "a wrong answer got by, after %" PRIuFAST64 " faults\n",
					atomic_load(&s->faults));
				exit(1);
			}
			atomic_fetch_add(&s->answers, 1);
		} else if (r == JOB_REFUSED) {
			usleep(300); /* the host would do it */
		} else {
			atomic_fetch_add(&s->faults, 1);
		}
	}
	return NULL;
}

static void soak(const char *simulation, enum layout layout, uint64_t wanted)
{
	struct image image = launcher_image(layout);
	static struct soak s;
	pthread_t threads[THREADS];

	memset(&s, 0, sizeof s);
	s.image = &image;
	s.wanted = wanted;
	/* What hangs is to be noticed soon; what is only slow then is a fault too, and no wrong answer. */
	launcher_init(&s.launcher, &image, ROWS, simulation, strncmp(simulation, "hang", 4) == 0 ? 5 : 10000);
	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, caller, &s))
			abort();
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	struct runner_status status;
	runner_status(s.launcher.runner, &status);
	printf("%s, layout %d: %" PRIuFAST64 " faults, %" PRIuFAST64 " right answers, none wrong; %" PRIu64
	       " timeouts, %" PRIu64 " errors, %" PRIu64 " hangs, %" PRIu64 " mismatches, %" PRIu64
	       " recoveries\n",
	       simulation, layout, atomic_load(&s.faults), atomic_load(&s.answers), status.timeouts,
	       status.errors, status.hangs, status.mismatches, status.recoveries);
	launcher_fini(&s.launcher);
	image_fini(&image);
	if (!atomic_load(&s.answers))
		abort();
	/* What the schedule has none of is a fault of ours, or of the library beneath. */
	if (status.errors && !strstr(simulation, "error")) {
		fprintf(stderr, "errors without an error in the schedule: %s\n", status.reason);
		exit(1);
	}
}

static unsigned descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Pages that are resident. */
static long pages(void)
{
	long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2)
		abort();
	fclose(f);
	return resident;
}

static int endurance(uint64_t count)
{
	struct image image = launcher_image(LAYOUT_BLOCKED);
	struct launcher l;
	static int8_t q[ROWS * LAUNCHER_K];
	static int32_t acc[ROWS * LAUNCHER_ND];
	long before_pages = 0;
	unsigned before_descriptors = 0;

	launcher_init(&l, &image, ROWS, "", 10000);
	for (uint64_t i = 0; i < count; i++) {
		if (i == count / 10) { /* warm by now */
			before_pages = pages();
			before_descriptors = descriptors();
		}
		q[i % sizeof q]++;
		if (q[i % sizeof q] == -128)
			q[i % sizeof q] = 0;
		if (launcher_run(&l, i % 2, q, ROWS, acc) != JOB_DONE) {
			fprintf(stderr, "launch %" PRIu64 " failed\n", i);
			return 1;
		}
	}
	long grown = pages() - before_pages;
	unsigned now = descriptors();
	printf("%" PRIu64 " launches: %ld pages more, %u descriptors then, %u now\n", count, grown,
	       before_descriptors, now);
	launcher_fini(&l);
	image_fini(&image);
	return grown > 64 || now > before_descriptors;
}

int main(int argc, char **argv)
{
	uint64_t count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;

	if (count == 0) {
		fprintf(stderr, "usage: %s FAULTS|endurance COUNT\n", argv[0]);
		return 2;
	}
	if (strcmp(argv[1], "endurance") == 0)
		return endurance(count);
	soak(argv[1], LAYOUT_BLOCKED, count);
	soak(argv[1], LAYOUT_ROW_MAJOR, count);
	return 0;
}
