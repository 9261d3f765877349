#include "packer.h"
#include "own.h"
#include <inttypes.h>
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
	if (r)
		return r;
	(void)take(&tensor);
	(*out)->most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
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

int packer_fill(struct load *l, struct err *err)
{
	int r = load_identify(l, err);
	uint64_t bytes = r ? 0 : geometry_bytes(&l->geometry);

	if (bytes > l->most)
		return err_set(err, NPU_E_TOO_LARGE,
			       "%s: packed it has %" PRIu64 " bytes, and this machine's memory %" PRIu64
			       "; pack it on a larger one",
			       l->request.label, bytes, l->most);
	return r ? r : load_fill(l, err);
}

static void *pack(void *arg)
{
	struct packing *p = arg;

	p->result = packer_fill(p->load, &p->err);
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
