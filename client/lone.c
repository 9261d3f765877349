#include "lone.h"
#include "own.h"
#include "packer.h"
#include "pool.h"
#include <string.h>

struct lone {
	struct kernels kernels;
	struct hash_secret secret;
	struct load *load; /* keeps the image */
	struct pool *pool;
	int8_t *q; /* [kd] */
};

void lone_close(struct lone *l)
{
	if (!l)
		return;
	pool_free(l->pool);
	load_free(l->load);
	free(l->q);
	free(l);
}

static void lone_closep(struct lone **l)
{
	lone_close(*l);
}

int lone_open(struct lone **out, const char *model, const char *tensor, unsigned threads, uint32_t *nv,
	      uint32_t *h, struct err *err)
{
	cleanup(lone_closep) struct lone *l = calloc(1, sizeof *l);
	cleanup(model_fini) struct model m = {.files = NULL};
	struct load_request request = {.layout = LAYOUT_BLOCKED, .tensor = strdup(tensor ? tensor : "")};
	int r = l ? model_find(&m, model, err) : NPU_E_NO_MEMORY;

	if (r) {
		free(request.tensor);
		return l ? r : err_set(err, r, "no memory");
	}
	kernels_pick(&l->kernels, cpu_have(), NULL); /* without a name there is always one */
	hash_secret_public(&l->secret);
	if (packer_new(&l->load, &m, &request, &l->secret, &l->kernels, threads) ||
	    !pool_new(&l->pool, threads))
		return err_set(err, NPU_E_NO_MEMORY, "no memory, or no threads, for a head");
	r = packer_fill(l->load, err);
	if (r)
		return r;
	const struct geometry *g = &l->load->geometry;
	image_measure(&l->kernels, l->pool);
	l->q = malloc(g->kd);
	if (!l->q)
		return err_set(err, NPU_E_NO_MEMORY, "no memory for a row");
	*nv = g->nv;
	*h = g->h;
	*out = take(&l);
	return 0;
}

int lone_run(struct lone *l, const float *x, float *logits, uint32_t *id, float *value)
{
	const struct geometry *g = &l->load->geometry;
	struct pass_row row = {.logits = logits, .k = logits ? 0 : 1, .ids = id, .values = value};

	l->kernels.quantise(l->q, &row.ascale, x, g->h, g->kd);
	return image_run(&l->load->image, &l->kernels, l->pool, &(struct pass){l->q, &row, 1})
		       ? 0
		       : NPU_E_NO_MEMORY;
}
