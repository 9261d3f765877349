#include "placement.h"
#include "own.h"
#include <stdio.h>
#include <string.h>

void placement_fini(struct placement *p)
{
	for (uint32_t t = 0; p->weights && t < p->tiles; t++)
		weights_free(p->weights[t]);
	free(p->weights);
	p->weights = NULL;
}

bool placement_choose(struct placement *p, struct geometry *g, uint32_t nv, uint32_t h, unsigned layouts)
{
	if (!p->accelerator || !p->accelerator->runner)
		return false;
	p->design = accelerator_design(p->accelerator, nv, h, layouts);
	if (!p->design) {
		snprintf(p->why, sizeof p->why,
			 "no kernel of the set covers %u x %u%s; npuctl device lists what there is", nv, h,
			 layouts == PLACEMENT_ANY_LAYOUT ? "" : " in the layout asked for");
		return false;
	}
	*g = design_geometry(p->design, nv, h);
	return true;
}

/* The device's memory for every tile, and where its codes are; false with why where there is not enough. */
static bool take_weights(struct placement *p, int8_t **codes)
{
	struct device_why why = {""};

	p->weights = calloc(p->tiles, sizeof *p->weights);
	for (uint32_t t = 0; p->weights && t < p->tiles; t++) {
		if (weights_new(&p->weights[t], p->accelerator->runner, p->design, &why)) {
			snprintf(p->why, sizeof p->why, "the device has no memory for tile %u of %u: %.160s",
				 t, p->tiles, why.text);
			p->weights[t] = NULL;
			placement_fini(p);
			return false;
		}
		codes[t] = weights_codes(p->weights[t]);
	}
	return p->weights != NULL;
}

uint64_t placement_bytes(const struct placement *p, const struct geometry *g)
{
	return image_bytes(g, p->design);
}

uint64_t placement_transient(const struct placement *p, const struct geometry *g)
{
	uint64_t host = image_bytes(g, false), meant = placement_bytes(p, g);

	return host > meant ? host - meant : 0;
}

bool placement_memory(struct placement *p, struct image *image, const struct geometry *g)
{
	p->tiles = g->tiles;
	cleanup(freep) int8_t **codes = p->design ? calloc(g->tiles, sizeof *codes) : NULL;

	if (codes && take_weights(p, codes))
		return image_init_on(image, g, codes);
	return image_init(image, g);
}

/* The same image in the host's memory. */
static bool leave_device(struct placement *p, struct image *image)
{
	struct image host = {};

	if (!image_init(&host, &image->geometry))
		return false;
	for (uint32_t t = 0; t < p->tiles; t++) {
		struct tile from = image_tile(image, t), to = image_tile(&host, t);
		memcpy(to.codes, from.codes, (size_t)from.kd * from.nd);
		memcpy(to.scales, from.scales, from.nd * sizeof *from.scales);
	}
	image_fini(image);
	placement_fini(p);
	*image = host;
	return true;
}

bool placement_seal(struct placement *p, struct image *image)
{
	struct device_why why = {""};

	for (uint32_t t = 0; p->weights && t < p->tiles; t++) {
		if (weights_seal(p->weights[t], &why) == DEVICE_OK)
			continue;
		snprintf(p->why, sizeof p->why, "the device did not take tile %u of %u: %.160s", t, p->tiles,
			 why.text);
		return leave_device(p, image);
	}
	return true;
}
