/*
 * weights-calls MODEL: projection weights through libnpu, of the model that tests/flow/weights.py writes:
 * each product is compared, bit by bit, with the same tensors opened as heads. Says what failed and ends
 * with 1.
 */
#include "npu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 96, ROWS = 300, Q = 192, V = 40, N = Q + V, E = 100 };

static npu_client *client;

static _Noreturn void failed(const char *what)
{
	fprintf(stderr, "FAIL: %s: %s\n", what, npu_error_text(client));
	exit(1);
}

#define CHECK(ok)                    \
	do {                         \
		if (!(ok))           \
			failed(#ok); \
	} while (0)

static float x[ROWS * K], y[ROWS * N], want[ROWS * N];

/* The logits of a tensor opened as a head, as columns `from` and on of want[rows][n]. */
static void as_head(const char *model, const char *tensor, unsigned from, unsigned n)
{
	static float logits[ROWS * N];
	const struct npu_head_options options = {.tensor = tensor};
	struct npu_head_info info;
	npu_head *head;

	CHECK(npu_head_open(client, model, &options, &head, &info) == 0);
	CHECK(npu_head_logits(head, x, ROWS, logits, NULL) == 0);
	for (unsigned m = 0; m < ROWS; m++)
		memcpy(want + m * n + from, logits + m * info.nv, info.nv * sizeof *logits);
	CHECK(npu_head_close(head) == 0);
}

static void on_done(void *arg, npu_call *call, int result)
{
	(void)call;
	*(int *)arg = result;
}

static void two_layers(npu_model *m, const char *model)
{
	for (unsigned layer = 0; layer < 2; layer++) {
		char q[8], v[8];
		const char *const tensors[] = {q, v};
		const struct npu_weights_options options = {.role = "0", .layer = layer};
		struct npu_head_info info;
		struct npu_run_info ran;
		npu_weights *w, *again;
		int finished = 1;

		snprintf(q, sizeof q, "%u.q", layer);
		snprintf(v, sizeof v, "%u.v", layer);
		as_head(model, q, 0, N);
		as_head(model, v, Q, N);
		CHECK(npu_weights_load(m, tensors, 2, &options, &w, &info) == 0);
		CHECK(info.nv == N && info.h == K && strcmp(info.layout, "blocked") == 0);
		CHECK(npu_weights_load(m, tensors, 2, &options, &again, &info) == 0);
		CHECK(info.attached);
		CHECK(npu_gemm(w, x, ROWS, y, &ran) == 0); /* in more than one request */
		CHECK(memcmp(y, want, sizeof y) == 0 && strcmp(ran.path, "host") == 0);
		memset(y, 0, sizeof y);
		npu_weights_set_verify(again, true);
		CHECK(npu_gemm_start(again, x, ROWS, y, &ran, on_done, &finished, NULL) == 0);
		while (finished == 1)
			CHECK(npu_dispatch(client, -1) >= 0);
		CHECK(finished == 0 && memcmp(y, want, sizeof y) == 0 && ran.verified);
		CHECK(npu_weights_set_path(again, "device") == 0);
		CHECK(npu_gemm(again, x, 1, y, NULL) == NPU_E_NO_PATH);
		CHECK(npu_weights_set_path(again, "nowhere") == NPU_E_BAD_VALUE);
		CHECK(npu_weights_close(w) == 0 && npu_weights_close(again) == 0);
	}
}

static void experts(npu_model *m, const char *model)
{
	for (unsigned e = 0; e < 4; e++) {
		char name[16];
		const char *const tensors[] = {name};
		const struct npu_weights_options options = {.layer = e};

		snprintf(name, sizeof name, "expert%u", e);
		as_head(model, name, 0, E);
		CHECK(npu_gemm_expert(m, tensors, 1, &options, x, ROWS, K, y, E, NULL) == 0);
		CHECK(memcmp(y, want, ROWS * E * sizeof *y) == 0);
		CHECK(npu_gemm_expert(m, tensors, 1, &options, x, 1, K, y, E + 1, NULL) == NPU_E_MALFORMED);
		CHECK(npu_gemm_expert(m, tensors, 1, &options, x, 1, K - 1, y, E, NULL) == NPU_E_BAD_COUNT);
	}
}

static int count_row(void *arg, const struct npu_head_row *row)
{
	(void)row;
	++*(unsigned *)arg;
	return 0;
}

static void refusals(npu_model *m)
{
	static const char *const one[] = {"0.q"}, *const none[] = {"no such tensor"}, *const null[] = {NULL};
	const struct npu_weights_options options = {.role = "0"}, nothing = {.role = NULL},
					 expert = {.role = "-1"};
	npu_weights *w;
	npu_model *other;

	CHECK(npu_weights_load(m, none, 1, &options, &w, NULL) == NPU_E_NO_HEAD && !w);
	CHECK(npu_weights_load(m, one, 0, &options, &w, NULL) == NPU_E_BAD_VALUE && !w);
	CHECK(npu_weights_load(m, one, 9, &options, &w, NULL) == NPU_E_BAD_VALUE && !w);
	CHECK(npu_weights_load(m, null, 1, &options, &w, NULL) == NPU_E_BAD_VALUE && !w);
	CHECK(npu_weights_load(m, one, 1, &nothing, &w, NULL) == NPU_E_BAD_VALUE);
	CHECK(npu_weights_load(m, one, 1, &expert, &w, NULL) == NPU_E_BAD_VALUE && !w);
	CHECK(npu_weights_load(NULL, one, 1, &options, &w, NULL) == NPU_E_BAD_VALUE);
	CHECK(npu_gemm(NULL, x, 1, y, NULL) == NPU_E_BAD_VALUE);
	CHECK(npu_model_open(client, "/nowhere/at/all", &other) != 0 && !other);
	CHECK(npu_model_close(NULL) == 0 && npu_weights_close(NULL) == 0);
}

int main(int argc, char **argv)
{
	npu_model *m, *left;
	npu_weights *w;
	unsigned count = 0;
	static const char *const one[] = {"0.q"};
	const struct npu_weights_options options = {.role = "0"};

	if (argc != 2)
		return 64;
	for (unsigned i = 0; i < ROWS * K; i++)
		x[i] = (float)((i * 2654435761u >> 8) % 2001) / 1000 - 1;
	if (npu_connect(&client, NULL, "weights-calls") || npu_model_open(client, argv[1], &m))
		failed("open");
	two_layers(m, argv[1]);
	experts(m, argv[1]);
	refusals(m);
	/* What was loaded outlives its model's handle; npu_close takes what is left. */
	CHECK(npu_weights_load(m, one, 1, &options, &w, NULL) == 0);
	CHECK(npu_model_close(m) == 0);
	CHECK(npu_gemm(w, x, 1, y, NULL) == 0);
	CHECK(npu_weights_list(client, count_row, &count) == 0 && count > 0);
	CHECK(npu_model_open(client, argv[1], &left) == 0);
	npu_close(client);
	return 0;
}
