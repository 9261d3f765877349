/*
 * make-model FILE N K [SEED]: a safetensors file with one BF16 matrix lm_head.weight [N][K], the same for
 * the same numbers on every machine. Values are about bell shaped (a sum of four uniform ones), deviation
 * 0.02.
 */
#include "dice.h"
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint16_t bf16(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >>
			  16); /* to nearest, ties to even; never NaN here */
}

static uint16_t draw(uint64_t *state)
{
	uint64_t r = splitmix(state);
	int32_t sum =
		(int32_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) - 2 * 65535;
	/* 37837: the deviation of that sum, 65536 * sqrt(4 / 12) */
	return bf16((float)sum * (0.02f / 37837.0f));
}

static int number(const char *text, uint64_t most, uint64_t *out)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || v < 1 || v > most)
		return -1;
	*out = v;
	return 0;
}

static int header(FILE *f, uint64_t n, uint64_t k)
{
	char json[256];
	int used = snprintf(json, sizeof json,
			    "{\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[%" PRIu64 ",%" PRIu64
			    "],\"data_offsets\":[0,%" PRIu64 "]}}",
			    n, k, n * k * 2);
	while (used % 8)
		json[used++] = ' ';
	unsigned char size[8] = {(unsigned char)used, (unsigned char)(used >> 8)};
	return fwrite(size, 1, 8, f) == 8 && fwrite(json, 1, (size_t)used, f) == (size_t)used ? 0 : -1;
}

static int rows(FILE *f, uint64_t n, uint64_t k, uint64_t seed)
{
	unsigned char *row = malloc(k * 2);
	if (!row)
		return -1;
	int r = 0;
	for (uint64_t i = 0; r == 0 && i < n; i++) {
		for (uint64_t j = 0; j < k; j++) {
			uint16_t v = draw(&seed);
			row[2 * j] = (unsigned char)v;
			row[2 * j + 1] = (unsigned char)(v >> 8);
		}
		if (fwrite(row, 2, k, f) != k)
			r = -1;
	}
	free(row);
	return r;
}

int main(int argc, char **argv)
{
	uint64_t n, k, seed = 1;
	if (argc < 4 || argc > 5 || number(argv[2], 1u << 24, &n) || number(argv[3], 1u << 24, &k) ||
	    (argc == 5 && number(argv[4], UINT64_MAX, &seed))) {
		fprintf(stderr, "usage: make-model FILE N K [SEED]\n");
		return 2;
	}
	FILE *f = fopen(argv[1], "wb");
	if (!f) {
		fprintf(stderr, "make-model: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	int bad = header(f, n, k) || rows(f, n, k, seed);
	bad |= fclose(f) != 0;
	if (bad) {
		fprintf(stderr, "make-model: %s: cannot write: %s\n", argv[1], strerror(errno));
		remove(argv[1]);
		return 1;
	}
	return 0;
}
