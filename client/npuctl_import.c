/*
 * npuctl store import: Q4HI files that hold a model's head. A file's hash does not say whose weights it has,
 * nor in which layout, so the model is packed here, by the daemon's own loader, and every column compared.
 * Only when all are the same does the daemon take the head, from the model: what it keeps it has packed
 * itself.
 */
#include "npuctl.h"
#include "output.h"
#include "own.h"
#include "packer.h"
#include "q4hi.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 4
#define OF_A_DEVICE \
	"where it was cut for a kernel of a device: npuctl store add has npud pack it so; nothing was kept"

static int complain_err(const struct err *err)
{
	return exit_complain(exit_status(err->code), "%s", err->text);
}

/* The number in "...-t3.q4hi"; false where the name has none. */
static bool tile_of(const char *path, uint64_t *out)
{
	static const char tail[] = ".q4hi";
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *t = strrchr(name, '-');
	char digits[16];
	size_t size = t ? strlen(t) : 0;

	if (size < 2 + sizeof tail || t[1] != 't' || size - 2 - (sizeof tail - 1) >= sizeof digits ||
	    strcmp(t + size - (sizeof tail - 1), tail) != 0)
		return false;
	snprintf(digits, sizeof digits, "%.*s", (int)(size - 2 - (sizeof tail - 1)), t + 2);
	return strspn(digits, "0123456789") == strlen(digits) && reading_number(digits, 0, UINT32_MAX, out);
}

static int open_image(struct q4hi *out, int *fd, const char *path)
{
	struct err err;

	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (*fd < 0)
		return exit_complain(EX_NOINPUT, "%s: cannot open: %s", path, strerror(errno));
	return q4hi_open(out, *fd, path, 0, 0, &err) ? complain_err(&err) : 0;
}

/* The packed model to compare with. `tile`, of the files, is the T that they have. */
static int pack_model(struct load **out, const struct options *o, uint32_t tile,
		      const struct hash_secret *secret, const struct kernels *kernels)
{
	cleanup(model_fini) struct model m = {.files = NULL};
	struct reading reading = o->reading;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct err err;

	reading.tile = tile;
	if (model_find(&m, o->operands[1], &err))
		return exit_found(&err);
	struct load_request request = packer_request(&reading);
	if (packer_new(out, &m, &request, secret, kernels,
		       cpus > 0 && cpus < THREADS_MAX ? (unsigned)cpus : THREADS_MAX))
		return no_memory();
	return 0;
}

static void show(void *arg, uint32_t done, uint32_t tiles)
{
	progress_show(arg, done, tiles);
}

/* Which column differs first, in the words of whoever has to find out why. */
static int differs(const char *path, const struct tile *file, const struct tile *packed)
{
	if (memcmp(file->codes, packed->codes, (size_t)file->kd * file->nd) == 0 &&
	    memcmp(file->scales, packed->scales, file->nd * sizeof *file->scales) == 0)
		return 0;
	for (uint32_t n = 0; n < file->nd; n++) {
		if (memcmp(&file->scales[n], &packed->scales[n], sizeof(float)) != 0)
			return exit_complain(
				EX_DATAERR,
				"%s: column %" PRIu32 ": the scale is %.9g in the file and %.9g packed from "
				"the model: it is of other weights, or of another tile; nothing was kept",
				path, n, (double)file->scales[n], (double)packed->scales[n]);
		for (uint32_t k = 0; k < file->kd; k++) {
			size_t at = tile_index(file, k, n);
			if (file->codes[at] != packed->codes[at])
				return exit_complain(EX_DATAERR,
						     "%s: column %" PRIu32 ", row %" PRIu32
						     ": the code is %d in the file and %d packed from the "
						     "model: it is of other "
						     "weights, or of the other --layout; nothing was kept",
						     path, n, k, file->codes[at], packed->codes[at]);
		}
	}
	return 0;
}

static int compare(const struct load *l, const char *path, uint32_t number)
{
	const struct geometry *g = &l->geometry;
	cleanup(closep) int fd = -1;
	cleanup(freep) int8_t *codes = malloc((size_t)g->kd * g->nd);
	cleanup(freep) float *scales = malloc(g->nd * sizeof *scales);
	struct tile file = {g->kd, g->nd, g->layout, codes, scales}, packed = image_tile(&l->image, number);
	struct q4hi q;
	struct err err;

	if (!codes || !scales)
		return no_memory();
	int status = open_image(&q, &fd, path);
	if (status)
		return status;
	if (q.kd != g->kd || q.nd != g->nd)
		return exit_complain(EX_DATAERR,
				     "%s: geometry: kd %" PRIu32 ", nd %" PRIu32 "; of this model kd %" PRIu32
				     ", nd %" PRIu32 " was expected; " OF_A_DEVICE,
				     path, q.kd, q.nd, g->kd, g->nd);
	if (q4hi_read(&q, codes, scales, &err))
		return complain_err(&err);
	return differs(path, &file, &packed);
}

/* The files by their tiles: each there, and once. Owned; borrows the names. */
static int sort_files(const char ***out, const struct options *o, uint32_t tiles)
{
	cleanup(freep) const char **files = calloc(tiles, sizeof *files);
	char *const *names = o->operands + 2;

	if (!files)
		return no_memory();
	for (size_t i = 0; names[i]; i++) {
		uint64_t t;
		if (!tile_of(names[i], &t))
			return exit_usage(
				"store import: %s: the name does not say which tile it is; ...-t0.q4hi does",
				names[i]);
		if (t >= tiles)
			return exit_complain(EX_DATAERR,
					     "%s: this model has %" PRIu32
					     " tiles of that width, t0 to t%" PRIu32,
					     names[i], tiles, tiles - 1);
		if (files[t])
			return exit_complain(EX_DATAERR, "%s: %s is the same tile; give one of them",
					     names[i], files[t]);
		files[t] = names[i];
	}
	for (uint32_t t = 0; t < tiles; t++)
		if (!files[t])
			return exit_complain(EX_DATAERR,
					     "store import: tile t%" PRIu32 " of %" PRIu32
					     " is missing; all are compared before any is kept",
					     t, tiles);
	*out = take(&files);
	return 0;
}

static int compare_all(struct load *l, const struct options *o)
{
	cleanup(freep) const char **files = NULL;
	struct progress progress;
	struct err err;

	progress_begin(&progress);
	int r = packer_pack(l, show, &progress, &err);
	progress_end(&progress);
	if (r == NPU_E_BAD_GEOMETRY)
		return exit_complain(EX_DATAERR, "%s; " OF_A_DEVICE, err.text);
	if (r)
		return complain_err(&err);
	int status = sort_files(&files, o, l->geometry.tiles);
	for (uint32_t t = 0; t < l->geometry.tiles && status == 0; t++)
		status = compare(l, files[t], t);
	return status;
}

int do_import(npu_client *c, const struct options *o)
{
	cleanup(closep) int fd = -1;
	struct hash_secret secret;
	struct kernels kernels;
	struct load *l = NULL;
	struct q4hi first;

	if (!o->operands[2])
		return exit_usage(
			"store import: which files? npu-head pack and npuctl store export make them");
	if (o->reading.tile)
		return exit_usage("store import: --tile does not go with it: the files have their width");
	int status = open_image(&first, &fd, o->operands[2]);
	if (status)
		return status;
	kernels_pick(&kernels, cpu_have(), NULL); /* without a name there is always one */
	hash_secret_public(&secret);
	status = pack_model(&l, o, first.nd, &secret, &kernels);
	if (status == 0)
		status = compare_all(l, o);
	load_free(l);
	if (status)
		return status;
	return add_model(c, o, first.nd, o->reading.layout ? o->reading.layout : "blocked");
}
