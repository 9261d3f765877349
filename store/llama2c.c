#include "container_impl.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* llama2.c's Config: the whole header of a version 0 checkpoint. A negative vocabulary: own classifier. */
struct config {
	int32_t dim, hidden, layers, heads, kv_heads, vocabulary, positions;
};

static_assert(sizeof(struct config) == 28, "the header as it is stored");

/* What makes a file one of these, for it has no magic. Any model stays far below. */
static bool plausible(const struct config *g)
{
	return g->dim > 0 && g->dim <= 1 << 17 && g->hidden > 0 && g->hidden <= 1 << 20 && g->layers > 0 &&
	       g->layers <= 1 << 12 && g->heads > 0 && g->heads <= g->dim && g->dim % g->heads == 0 &&
	       g->kv_heads > 0 && g->kv_heads <= g->heads && g->vocabulary != 0 &&
	       g->vocabulary >= -(1 << 24) && g->vocabulary <= 1 << 24 && g->positions > 0 &&
	       g->positions <= 1 << 24;
}

int llama2c_read(struct container *c, bool *taken, struct err *err)
{
	struct config g;

	*taken = false;
	if (c->size < sizeof g)
		return 0;
	int code = container_pread(c, NULL, 0, &g, sizeof g, err);
	*taken = !code && plausible(&g);
	if (!*taken)
		return code;
	uint64_t dim = (uint64_t)g.dim, layers = (uint64_t)g.layers, hidden = (uint64_t)g.hidden;
	uint64_t vocabulary = (uint64_t)llabs(g.vocabulary), size = dim / (uint64_t)g.heads;
	const struct {
		const char *name;
		unsigned rank;
		uint64_t shape[3]; /* slowest first */
	} parts[] = {
		{"token_embedding_table", 2, {vocabulary, dim}},
		{"rms_att_weight", 2, {layers, dim}},
		{"wq", 3, {layers, dim, dim}},
		{"wk", 3, {layers, size * (uint64_t)g.kv_heads, dim}},
		{"wv", 3, {layers, size * (uint64_t)g.kv_heads, dim}},
		{"wo", 3, {layers, dim, dim}},
		{"rms_ffn_weight", 2, {layers, dim}},
		{"w1", 3, {layers, hidden, dim}},
		{"w2", 3, {layers, dim, hidden}},
		{"w3", 3, {layers, hidden, dim}},
		{"rms_final_weight", 1, {dim}},
		{"freq_cis", 3, {2, (uint64_t)g.positions, size / 2}},
		{"wcls", 2, {vocabulary, dim}},
	};
	size_t count = sizeof parts / sizeof *parts - (g.vocabulary > 0);
	uint64_t at = sizeof g;

	/* No product or sum wraps: plausible() bounds each below 2^50 values. */
	for (size_t i = 0; i < count; i++) {
		struct tensor *t;
		code = container_add(c, parts[i].name, strlen(parts[i].name), &t, err);
		if (code)
			return code;
		t->type = TYPE_F32;
		t->offset = at;
		t->bytes = sizeof(float);
		t->rank = parts[i].rank;
		for (unsigned d = 0; d < t->rank; d++) {
			t->shape[d] = parts[i].shape[d];
			t->bytes *= t->shape[d];
		}
		at += t->bytes;
	}
	if (at != c->size)
		return container_damaged(c, NULL, err,
					 "taken for a llama2.c checkpoint (dim %" PRId32 ", hidden %" PRId32
					 ", %" PRId32 " layers, vocabulary %" PRId32
					 "), it would have %" PRIu64 " bytes and has %" PRIu64,
					 g.dim, g.hidden, g.layers, g.vocabulary, at, c->size);
	return 0;
}
