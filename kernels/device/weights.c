#include "runner_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

int weights_new(struct weights **out, struct runner *r, const struct design *design, struct device_why *why)
{
	struct weights *w = calloc(1, sizeof *w);
	void *codes = NULL;

	if (!w) {
		snprintf(why->text, sizeof why->text, "no memory for the weights of a tile");
		return DEVICE_E_NO_MEMORY;
	}
	int code = r->table->buffer_new(&w->buffer, r->device, DEVICE_B, (size_t)design->kd * design->nd,
					&codes, why);
	if (code) {
		free(w);
		return code;
	}
	w->runner = r;
	w->design = design;
	w->tile = (struct tile){.kd = design->kd,
				.nd = design->nd,
				.layout = design->layout ? LAYOUT_BLOCKED : LAYOUT_ROW_MAJOR,
				.codes = codes};
	atomic_init(&w->references, 1);
	*out = w;
	return DEVICE_OK;
}

int8_t *weights_codes(struct weights *w)
{
	return w->tile.codes;
}

uint32_t weights_rows(const struct weights *w)
{
	return w->design->rows;
}

int weights_seal(struct weights *w, struct device_why *why)
{
	uint64_t seed;

	if (getrandom(&seed, sizeof seed, 0) != sizeof seed || !check_init(&w->check, &w->tile, seed)) {
		snprintf(why->text, sizeof why->text,
			 "no memory, or no random numbers, for the check of a tile");
		return DEVICE_E_NO_MEMORY;
	}
	return w->runner->table->buffer_sync(w->buffer, DEVICE_TO, 0, (size_t)w->tile.kd * w->tile.nd, why);
}

struct weights *weights_keep(struct weights *w)
{
	atomic_fetch_add(&w->references, 1);
	return w;
}

void weights_release(struct weights *w)
{
	if (atomic_fetch_sub(&w->references, 1) != 1)
		return;
	w->runner->table->buffer_free(w->buffer);
	check_fini(&w->check);
	free(w);
}

void weights_free(struct weights *w)
{
	if (w)
		weights_release(w);
}
