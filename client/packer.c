#include "packer.h"
#include "own.h"
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
