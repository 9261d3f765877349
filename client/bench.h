/* What the commands of npu-bench share. One thread. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdint.h>

struct bench_options {
	const char *model, *socket, *tensor, *clients;
	double seconds;
	bool json, headers, logits, separate;
	uint32_t threads;  /* of each separate process */
	const char *a, *b; /* settings to compare */
	uint32_t rounds;
	double tolerance; /* percent; negative: none */
	bool one_sided;
};

/* npu-bench clients: how the rows a second grow with the number of clients. Returns an exit status. */
int bench_clients(const struct bench_options *o);

/* npu-bench compare: two settings by turns, their times and their bits. Returns an exit status. */
int bench_compare(const struct bench_options *o);

#endif
