/*
 * A kernel set: what geometries a device can run, and with which files, as data. It is a directory with a
 * manifest, kernels.json:
 *
 *   {"format": 1, "designs": [
 *     {"rows": 16, "kd": 4096, "nd": 4096, "layout": "blocked", "image": "xclbin",
 *      "file": "mm.xclbin", "kernel": "MLIR_AIE", "instructions": "mm.bin"}]}
 *
 * "layout" is "row-major" or "blocked"; "image" is "xclbin" or "elf", which has no "instructions". Files are
 * names within the directory. JSON, since designs are a list of records, which INI has no form for.
 * Not changed after it was opened; any thread may read it.
 */
#ifndef NPUD_KERNELSET_H
#define NPUD_KERNELSET_H

#include "device.h"
#include "geometry.h"

#define KERNELSET_MANIFEST "kernels.json"

struct kernelset {
	struct design *designs;
	uint32_t count;
};

/*
 * Reads the manifest and checks every file it names. 0, ABSENT (no manifest there), DENIED, BAD_KERNEL or
 * NO_MEMORY, with a sentence. Where the directory is a link, the designs have the files that it leads to now.
 */
int kernelset_open(struct kernelset *s, const char *directory, struct device_why *why);
void kernelset_close(struct kernelset *s); /* zeroed is fine */

/* The steps of it: the text of the manifest, malloced; what that says; whether the files are what it says. */
int kernelset_manifest(char **out, const char *directory, struct device_why *why);
int kernelset_check(const struct kernelset *s, struct device_why *why);

/* The manifest alone, from memory: no file is looked at. */
int kernelset_parse(struct kernelset *s, const char *text, size_t size, const char *directory,
		    struct device_why *why);

/*
 * The design that runs a head of nv x h with the fewest bytes of weights, where each tile, which is a launch,
 * counts for a mebibyte more; of equal ones, that with the fewest rows that take `rows` at once, or the most
 * rows. `layouts` has the bit 1 << layout of every layout allowed.
 * NULL where none covers it, or only one that takes more than twice the bytes the head would
 * have on the host: such a head is the host's.
 */
const struct design *kernelset_choose(const struct kernelset *s, uint32_t nv, uint32_t h, unsigned layouts,
				      uint32_t rows);

/* How the design cuts a head of nv x h, h at most its kd. */
struct geometry design_geometry(const struct design *d, uint32_t nv, uint32_t h);

#endif
