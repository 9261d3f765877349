/*
 * For tests: heads on a device, one launch after another. The device is the software one, or, where
 * NPUD_TEST_XRT names the module, XRT with whatever is beneath it.
 */
#ifndef NPUD_LAUNCHER_H
#define NPUD_LAUNCHER_H

#include "image.h"
#include "runner.h"

struct launcher {
	struct design design; /* of one head, in a kernel set of its own */
	char directory[32];
	struct runner *runner;
	struct weights **weights; /* one a tile */
	uint32_t tiles;
};

/*
 * The table in use, and the settings for a simulated device with these faults and limits: those of the
 * software device, or, put into the environment, those of the one beneath XRT.
 */
const struct device_table *launcher_table(void);
const char *launcher_settings(const char *simulation);

/* Random weights: two tiles, the second one not full. image_fini is owed. */
enum { LAUNCHER_NV = 200, LAUNCHER_K = 64, LAUNCHER_ND = 128 };
struct image launcher_image(enum layout layout);

/*
 * Opens the device and hands it every tile of the image, for `rows` at once, launches to end within
 * launch_ms. Aborts with a sentence.
 */
void launcher_init(struct launcher *l, const struct image *image, uint32_t rows, const char *simulation,
		   uint32_t launch_ms);
void launcher_fini(struct launcher *l);

/* acc[rows][nd] of tile t. */
enum job_result launcher_run(struct launcher *l, uint32_t t, const int8_t *q, uint32_t rows, int32_t *acc);

/* Waits until the device is well, at most 30 s. */
bool launcher_well(struct launcher *l);

#endif
