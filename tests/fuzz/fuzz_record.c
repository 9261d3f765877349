/*
 * Property: any bytes are the header of the one tile that is wanted, or a refusal with a sentence; the same
 * of a chunk's prefix, and of what files hashed to, without a sentence. The first byte chooses: a header as
 * it is, a header whose own hash is made right (or nothing would come past it), a chunk, what files hashed
 * to, also with its hash made right.
 */
#include "record.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const struct record_want want = {
	.key = {.hash = "0123456789abcde", .kd = 64, .nd = 256, .layout = RECORD_BLOCKED},
	.tile = 1,
	.tiles = 2,
	.columns = 200,
	.fingerprint = 0x1122334455667788,
};

static void try_header(const uint8_t *bytes, size_t size, const struct record_plan *plan)
{
	struct record_header h, again;
	struct refusal why = {.text = ""};
	if (!record_header_good(bytes, size, &want, plan, &h, &why)) {
		if (!why.text[0] || why.reason >= REFUSED_COUNT)
			abort();
		return;
	}
	/* What else a header says is what anybody may have written there. */
	record_header_make(&again, &want, plan, h.nonfinite, h.created);
	memcpy(again.sum, h.sum, sizeof again.sum);
	memcpy(again.reserved, h.reserved, sizeof again.reserved);
	again.self = h.self;
	if (memcmp(&h, &again, sizeof h) != 0)
		abort();
	uint64_t hashes[64] = {0};
	if (h.chunks > sizeof hashes / sizeof *hashes ||
	    (!record_sum_good(&h, hashes, &why) && why.reason != REFUSED_SUM))
		abort();
}

static void try_chunk(const uint8_t *bytes, size_t size, const struct record_plan *plan)
{
	struct record_tile tile;
	record_tile_key(&tile, &want.key, want.tile);
	for (uint32_t i = 0; i < plan->chunks; i++) {
		struct record_prefix p, right;
		struct refusal why = {.text = ""};
		uint64_t offset;
		uint32_t length;
		bool scales;
		record_plan_chunk(plan, i, &scales, &offset, &length);
		record_prefix_make(&right, &tile, i, length);
		if (!record_prefix_good(bytes, size, &tile, want.tile, i, length, &p, &why)) {
			if (!why.text[0] || why.reason >= REFUSED_COUNT)
				abort();
		} else if (memcmp(&p, &right, offsetof(struct record_prefix, hash)) != 0) {
			abort();
		}
	}
}

static void try_named(const uint8_t *bytes, size_t size, bool sealed)
{
	struct record_named r, out;
	if (sealed && size == sizeof r) {
		memcpy(&r, bytes, sizeof r);
		record_named_seal(&r);
		bytes = (const uint8_t *)&r;
	}
	if (record_named_good(bytes, size, &out) && (!out.hashes.count || out.hashes.count > RECORD_PARTS))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct record_plan plan;
	if (size == 0 || !record_plan_make(&plan, &want.key, want.columns))
		return 0;
	const uint8_t *rest = bytes + 1;
	struct record_header h;
	switch (bytes[0] % 5) {
	case 0:
		try_header(rest, size - 1, &plan);
		break;
	case 1:
		if (size - 1 < sizeof h)
			break;
		memcpy(&h, rest, sizeof h);
		h.self = XXH3_64bits(&h, offsetof(struct record_header, self));
		try_header((const uint8_t *)&h, sizeof h, &plan);
		break;
	case 2:
		try_chunk(rest, size - 1, &plan);
		break;
	default:
		try_named(rest, size - 1, bytes[0] % 5 == 4);
	}
	return 0;
}
