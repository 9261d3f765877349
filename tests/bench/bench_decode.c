/*
 * Every reading of stored weights by every variant of the decoders this processor runs: bytes of float32 a
 * second over those of a memcpy of the same bytes; and the columns packed a second from it over those from
 * float32 (design: at least 0.5). Medians of rounds that take all in turn. A slice is what the loader
 * decodes at once.
 */
#include "decode.h"
#include "clock.h"
#include "kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	ROUNDS = 15,
	WIDTH = 2048,
	COLUMNS = 256,
	SLICE = WIDTH * COLUMNS /* values */,
	VARIANTS = 8,
	TIMES = 4
};

static _Alignas(64) unsigned char stored[SLICE * sizeof(float)];
static _Alignas(64) float values[SLICE], copied[SLICE];
static int8_t codes[SLICE];
static float scales[COLUMNS];
static struct kernels kernels;

static const uint32_t block_values[] = {
#define TYPE(name, values, bytes) [TYPE_##name] = values,
#include "types.def"
#undef TYPE
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *of)
{
	qsort(of, ROUNDS, sizeof *of, by_value);
	return of[ROUNDS / 2];
}

static double copy_once(void)
{
	double start = clock_now();
	for (int i = 0; i < TIMES; i++) {
		memcpy(copied, values, sizeof values);
		__asm__ volatile("" ::"r"(copied), "r"(values) : "memory");
	}
	return clock_now() - start;
}

static double pack_once(void)
{
	struct tile tile = {
		.kd = WIDTH, .nd = COLUMNS, .layout = LAYOUT_BLOCKED, .codes = codes, .scales = scales};
	double start = clock_now();
	for (int i = 0; i < TIMES; i++)
		kernels.pack(&tile, 0, values, COLUMNS, WIDTH);
	return clock_now() - start;
}

/* One slice by one decoder: of a type, or with `type` TYPE_COUNT of a kind of Q4NX chunk. */
static double decode_once(const struct decoders *d, enum tensor_type type, int kind)
{
	double start = clock_now();
	for (int i = 0; i < TIMES; i++) {
		if (type < TYPE_COUNT)
			d->blocks[type](stored, SLICE, values);
		else
			for (size_t at = 0; at < SLICE; at += (size_t)WIDTH * Q4NX_ROWS)
				d->q4nx[kind](stored + at / 8192 * 8704, WIDTH, values + at);
		__asm__ volatile("" ::"r"(copied), "r"(values) : "memory");
	}
	return clock_now() - start;
}

static void row(const char *name, enum tensor_type type, int kind)
{
	double ratios[VARIANTS][ROUNDS], packed[VARIANTS][ROUNDS], copies[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		copies[round] = copy_once();
		for (size_t v = 0; decoders_variant(v); v++) {
			double decode = decode_once(decoders_variant(v), type, kind), pack = pack_once();
			ratios[v][round] = copies[round] / decode;
			packed[v][round] = pack / (decode + pack);
		}
	}
	printf("%-18s", name);
	for (size_t v = 0; decoders_variant(v); v++) {
		double ratio = median(ratios[v]);
		printf("  %5.2f %6.1f %5.2f", ratio, ratio * TIMES * sizeof values / median(copies) * 1e-9,
		       median(packed[v]));
	}
	printf("\n");
}

int main(void)
{
	for (size_t i = 0; i < sizeof stored; i++)
		stored[i] = (unsigned char)(i * 2654435761u >> 13 & 0x3b); /* scales stay finite */
	memset(values, 0, sizeof values);
	if (!kernels_pick(&kernels, cpu_have(), NULL))
		return 1;
	printf("%-18s", "reading");
	for (size_t v = 0; decoders_variant(v); v++)
		printf("  %-18s", decoders_variant(v)->variant);
	printf("\n%-18s", "");
	for (size_t v = 0; decoders_variant(v); v++)
		printf("  %5s %6s %5s", "/copy", "GB/s", "/pack");
	printf("\n");
	for (size_t type = 0; type < TYPE_COUNT; type++)
		if (decoders_variant(0)->blocks[type] && SLICE % block_values[type] == 0)
			row(tensor_type_name((enum tensor_type)type), (enum tensor_type)type, 0);
#define KIND(name, reading, columns, bytes) row("q4nx:" reading, TYPE_COUNT, Q4NX_##name);
	Q4NX_KINDS(KIND)
#undef KIND
	return 0;
}
