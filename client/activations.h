/*
 * activations: the rows of float32 that a head is given: read as raw little-endian numbers or .npy, or made
 * from a seed. Any thread. Functions return 0 or a negative NPU_E_ number with a sentence in `why`.
 */
#ifndef ACTIVATIONS_H
#define ACTIVATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ACTIVATIONS_WHY = 512 };

struct activations {
	float *values; /* owned */
	size_t count;
	bool shaped;	    /* .npy said so: */
	size_t rows, width; /* rows is 1 for shape (H,) */
};

/*
 * Reads `fd` to its end, which may be 4 GiB away: TOO_LARGE. IO: it cannot be read; MALFORMED: neither whole
 * float32 values nor a .npy of
 * '<f4' in C order with one or two dimensions; BAD_COUNT: no values, or not as many as the shape says.
 */
int activations_read(struct activations *out, int fd, char why[static ACTIVATIONS_WHY]);

/* The same from memory: `bytes` is from malloc and taken, whatever the outcome. */
int activations_parse(struct activations *out, unsigned char *bytes, size_t size,
		      char why[static ACTIVATIONS_WHY]);

/* Finds how many rows of `h` these are (0 < *rows: how many they have to be). BAD_COUNT when they are not. */
int activations_rows(const struct activations *a, uint32_t h, size_t *rows, char why[static ACTIVATIONS_WHY]);

/* `rows` rows of `h`: row m is the vector of `seed` + m. TOO_LARGE, NO_MEMORY. */
int activations_random(struct activations *out, uint64_t seed, size_t rows, uint32_t h,
		       char why[static ACTIVATIONS_WHY]);

/* The vector of one seed: splitmix64, uniform in [-4, 4) in steps of 2^-20, which float32 holds exactly. */
void activations_vector(float *out, size_t n, uint64_t seed);

void activations_fini(struct activations *a);

#endif
