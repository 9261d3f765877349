#include "packer.h"
#include "own.h"
#include <pthread.h>
#include <string.h>

int packer_new(struct load **out, struct model *m, struct load_request *request,
	       const struct hash_secret *secret, const struct kernels *kernels, unsigned threads)
{
	cleanup(freep) char *tensor = request->tensor;
	cleanup(source_fini) struct source source = {.files = calloc(m->count, sizeof *source.files)};

	if (!source.files || !tensor)
		return NPU_E_NO_MEMORY;
	for (size_t i = 0; i < m->count; i++) {
		source.files[i].fd = take_fd(&m->files[i].fd);
		source.files[i].name = take(&m->files[i].name);
	}
	source.count = m->count;
	memcpy(request->label, m->label, sizeof request->label);
	int r = load_new(out, request, &source, NULL, secret, kernels, threads);
	if (r == 0)
		(void)take(&tensor);
	return r;
}

struct load_request packer_request(const struct reading *r)
{
	struct load_request request = {
		.options = {.transpose = r->transpose, .is_signed = r->is_signed, .k = (uint32_t)r->k},
		.tile = (uint32_t)r->tile,
		.layout =
			r->layout && strcmp(r->layout, "row-major") == 0 ? LAYOUT_ROW_MAJOR : LAYOUT_BLOCKED,
		.tensor = strdup(r->tensor ? r->tensor : ""),
	};
	const char *q8 = r->q8 ? r->q8 : "auto";

	q8_layout_of(q8, strlen(q8), &request.options.q8);
	return request;
}

struct packing {
	struct load *load;
	int result;
	struct err err;
	atomic_bool done;
};

static void *pack(void *arg)
{
	struct packing *p = arg;

	p->result = load_identify(p->load, &p->err);
	if (p->result == 0)
		p->result = load_fill(p->load, &p->err);
	atomic_store(&p->done, true);
	return NULL;
}

int packer_pack(struct load *l, void (*progress)(void *arg, uint32_t done, uint32_t tiles), void *arg,
		struct err *err)
{
	struct packing p = {.load = l};
	pthread_t thread;

	if (pthread_create(&thread, NULL, pack, &p))
		return err_set(err, NPU_E_NO_MEMORY, "cannot start a thread");
	while (!atomic_load(&p.done)) {
		uint32_t done = atomic_load(&l->tiles_done);
		if (done)
			progress(arg, done, l->geometry.tiles);
		usleep(2000);
	}
	pthread_join(thread, NULL);
	if (p.result)
		*err = p.err;
	return p.result;
}
