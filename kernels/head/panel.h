/*
 * A pass over a tile in the blocked layout, for every instruction set: a file includes this after having said
 * what its vectors are, and gets `head_by_panels`. For head/ alone.
 *
 *   vec, LANES, vec_load, vec_store, vec_spread: int32 lanes
 *   weights(at, w): LANES columns of 8 k at `at`, as w[0] and w[1]: 4 k of a column in each lane
 *   dot(sum, w, x): adds to each lane the products of its 4 weights by the 4 activations in x
 *   UNSIGNED: 1 where `weights` are 128 more than the codes
 *   SHAPES(S, ask): S(rows, groups, ask), how many groups of LANES columns go together for 1 to 8 rows
 *   STREAM_ROWS: for so many rows and fewer, all columns of the panel go together
 *   HELD_ROWS: for so many rows and fewer, their activations are held in registers
 *
 * A panel is 128 columns, one piece of kd * 128 bytes. For few rows its sums stay in registers and it is read
 * in the order of its bytes. For more, it is read piece by piece, each some blocks (64 k) long: the sums of
 * up to 8 rows and of some columns are in registers down the piece, those of the whole panel in the cache.
 * The piece is small enough that the next columns and the next rows find it in the first cache. Weights are
 * made from codes again for every 8 rows, which is free beside the products; keeping them is not, for a core
 * that stores 64 bytes does not multiply meanwhile.
 */
#include "kernels.h"
#include <immintrin.h>
#include <string.h>

#define inlined static inline __attribute__((always_inline))
#define PANEL_COLUMNS 128
#define PANEL_ROWS 128
#define PART_ROWS 8
#define BLOCK_BYTES 8192
#define BLOCK_K 64
#define STEP_K 8
#define STEP_BYTES 1024
#define GROUPS (PANEL_COLUMNS / LANES)
#define GROUP_BYTES (LANES * 8)
#define LINE 64

typedef int32_t panel_sums[PANEL_COLUMNS];

inlined vec four(const int8_t *q)
{
	int32_t bytes;
	memcpy(&bytes, q, sizeof bytes);
	return vec_spread(bytes);
}

/*
 * In any order but that of the bytes, the processor does not guess what comes next. So the piece after this
 * one is asked for while this one is used: each of `parts` asks for its share of it, a little with every
 * step, for memory answers at its own pace and a core that asks for all at once waits. A line asked for twice
 * costs nothing.
 */
enum ask { NOTHING, ALL, SHARE };

struct piece {
	const int8_t *codes;
	const int8_t *next; /* what to ask for */
	uint32_t k;	    /* how long, a multiple of 64 */
	uint32_t kd;	    /* from a row of q to the next */
	uint32_t parts;
};

/* Down the piece for `groups` groups of columns from byte `at` of a step on; the last three are constants. */
inlined void visit(const struct piece *p, size_t at, const int8_t *q, panel_sums *sums, enum ask ask,
		   int rows, int groups)
{
	const uint32_t bytes = (uint32_t)groups * GROUP_BYTES, share = bytes / p->parts;
	const int lines = ask == NOTHING ? 0 : ask == ALL ? bytes / LINE : (bytes + LINE) / 2 / LINE;
	const int8_t *codes = p->codes + at, *end = codes + (size_t)p->k / STEP_K * STEP_BYTES;
	const int8_t *next = p->next + at / bytes * (p->k / STEP_K) * share;
	const uint32_t kd = p->kd;
	vec sum[8][8]; /* of which constants leave what registers hold */

	for (int m = 0; m < rows; m++)
		for (int g = 0; g < groups; g++)
			sum[m][g] = vec_load(&sums[m][LANES * g]);
	do {
		for (int line = 0; line < lines; line++)
			_mm_prefetch(next + line * LINE, _MM_HINT_T0);
		if (rows <= HELD_ROWS) {
			vec x[8][2], w[2];
			for (int m = 0; m < rows; m++) {
				x[m][0] = four(q + (size_t)m * kd);
				x[m][1] = four(q + (size_t)m * kd + 4);
			}
			for (int g = 0; g < groups; g++) {
				weights(codes + g * GROUP_BYTES, w);
				for (int m = 0; m < rows; m++)
					sum[m][g] = dot(dot(sum[m][g], w[0], x[m][0]), w[1], x[m][1]);
			}
		} else {
			vec w[8][2];
			for (int g = 0; g < groups; g++)
				weights(codes + g * GROUP_BYTES, w[g]);
			for (int half = 0; half < 2; half++)
				for (int m = 0; m < rows; m++) {
					vec x = four(q + (size_t)m * kd + 4 * half);
					for (int g = 0; g < groups; g++)
						sum[m][g] = dot(sum[m][g], w[g][half], x);
				}
		}
		next += share;
		q += STEP_K;
		codes += STEP_BYTES;
	} while (codes < end);
	for (int m = 0; m < rows; m++)
		for (int g = 0; g < groups; g++)
			vec_store(&sums[m][LANES * g], sum[m][g]);
}

typedef void columns_fn(const struct piece *p, const int8_t *q, uint32_t rows, panel_sums *sums);

/*
 * All columns of a piece, for 1 to PART_ROWS rows. A function for each way to ask, and none inlined in
 * another: the addresses of the rows need the registers.
 */
#define COLUMNS(name, ask)                                                                                \
	static __attribute__((noinline)) void name(const struct piece *p, const int8_t *q, uint32_t rows, \
						   panel_sums *sums)                                      \
	{                                                                                                 \
		switch (rows) {                                                                           \
			SHAPES(SHAPE, ask)                                                                \
		}                                                                                         \
	}
#define SHAPE(m, groups, ask)                                                                             \
	case m:                                                                                           \
		for (int g = 0; g < GROUPS; g += groups)                                                  \
			visit(p, g *GROUP_BYTES, q, (panel_sums *)(&sums[0][LANES * g]), ask, m, groups); \
		break;
COLUMNS(columns, NOTHING)
COLUMNS(columns_ask_all, ALL)
COLUMNS(columns_ask_share, SHARE)

/* What the sums of a row begin with: codes that are 128 more add 128 times the sum of q. */
inlined int32_t begin(const int8_t *q, uint32_t kd)
{
	_Alignas(64) int32_t lanes[LANES];
	vec sum = vec_spread(0);
	int32_t all = 0;

	if (!UNSIGNED)
		return 0;
	for (uint32_t k = 0; k < kd; k += sizeof(vec)) {
		vec x;
		memcpy(&x, q + k, sizeof x);
		sum = dot(sum, vec_spread(0x01010101), x);
	}
	vec_store(lanes, sum);
	for (int i = 0; i < LANES; i++)
		all += lanes[i];
	return (int32_t)(0 - 128 * (uint32_t)all); /* of the longest rows it wraps, and wraps back */
}

/* Adds to the sums of one panel for 1 to PANEL_ROWS rows. */
static void panel(const int8_t *codes, const int8_t *q, uint32_t kd, uint32_t rows, bool prefetch,
		  panel_sums *sums)
{
	if (rows <= STREAM_ROWS) {
		struct piece all = {codes, codes + BLOCK_BYTES, kd, kd, 1};
		(prefetch ? columns_ask_all : columns)(&all, q, rows, sums);
		return;
	}
	/* The longer, the more seldom sums are stored; with few rows that counts less than the order of
	 * bytes. */
	uint32_t parts = (rows + PART_ROWS - 1) / PART_ROWS, most = (parts == 1 ? 2 : 4) * BLOCK_K;
	for (uint32_t k = 0; k < kd; k += most) {
		struct piece p = {codes, NULL, kd - k < most ? kd - k : most, kd, parts};
		codes += (size_t)p.k * PANEL_COLUMNS;
		for (uint32_t m = 0, i = 0, some; i < parts; m += some, i++) {
			some = (rows - m) / (parts - i); /* as even as can be: few rows use a core badly */
			p.next = codes + (size_t)p.k * PANEL_COLUMNS / parts * i;
			(parts == 1 ? columns_ask_all : columns_ask_share)(&p, q + (size_t)m * kd + k, some,
									   sums + m);
		}
	}
}

static void head_by_panels(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t count,
			   bool prefetch, int32_t *acc)
{
	_Alignas(64) panel_sums sums[PANEL_ROWS];
	int32_t first[PANEL_ROWS];

	if (t->layout != LAYOUT_BLOCKED) {
		head_ref(t, q, rows, count, prefetch, acc);
		return;
	}
	for (uint32_t some; rows; rows -= some, q += (size_t)some * t->kd, acc += (size_t)some * count) {
		some = rows < PANEL_ROWS ? rows : PANEL_ROWS;
		for (uint32_t m = 0; m < some; m++)
			first[m] = begin(q + (size_t)m * t->kd, t->kd);
		for (uint32_t n = 0; n < count; n += PANEL_COLUMNS) {
			size_t wanted = count - n < PANEL_COLUMNS ? count - n : PANEL_COLUMNS;
			for (uint32_t m = 0; m < some; m++)
				for (int g = 0; g < GROUPS; g++)
					vec_store(&sums[m][LANES * g], vec_spread(first[m]));
			panel(t->codes + (size_t)n * t->kd, q, t->kd, some, prefetch, sums);
			for (uint32_t m = 0; m < some; m++)
				memcpy(acc + (size_t)m * count + n, sums[m], wanted * sizeof **sums);
		}
	}
}
