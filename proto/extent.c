#include "extent.h"
#include "err.h"
#include <stdbool.h>

#define STACK 32

/* What one tag announces: bytes of a length that follows it, bytes of body, values inside. */
struct tag {
	unsigned width;
	uint64_t body, items;
	bool contains; /* an array or a map, empty or not */
	enum { PLAIN, COUNT_BYTES, COUNT_ITEMS, COUNT_PAIRS, REFUSED } counts;
};

static struct tag tag_of(uint8_t t)
{
	if (t < 0x80 || t >= 0xe0 || t == 0xc0 || t == 0xc2 || t == 0xc3)
		return (struct tag){.counts = PLAIN};
	if (t < 0x90)
		return (struct tag){.items = 2u * (t & 15), .contains = true};
	if (t < 0xa0)
		return (struct tag){.items = t & 15, .contains = true};
	if (t < 0xc0)
		return (struct tag){.body = t & 31};
	switch (t) {
	case 0xca:
	case 0xce:
	case 0xd2:
		return (struct tag){.body = 4};
	case 0xcb:
	case 0xcf:
	case 0xd3:
		return (struct tag){.body = 8};
	case 0xcc:
	case 0xd0:
		return (struct tag){.body = 1};
	case 0xcd:
	case 0xd1:
		return (struct tag){.body = 2};
	case 0xc4:
	case 0xd9:
		return (struct tag){.width = 1, .counts = COUNT_BYTES};
	case 0xc5:
	case 0xda:
		return (struct tag){.width = 2, .counts = COUNT_BYTES};
	case 0xc6:
	case 0xdb:
		return (struct tag){.width = 4, .counts = COUNT_BYTES};
	case 0xdc:
		return (struct tag){.width = 2, .contains = true, .counts = COUNT_ITEMS};
	case 0xdd:
		return (struct tag){.width = 4, .contains = true, .counts = COUNT_ITEMS};
	case 0xde:
		return (struct tag){.width = 2, .contains = true, .counts = COUNT_PAIRS};
	case 0xdf:
		return (struct tag){.width = 4, .contains = true, .counts = COUNT_PAIRS};
	default: /* 0xc1 and the extension types */
		return (struct tag){.counts = REFUSED};
	}
}

int proto_extent_check(const void *bytes, size_t size, uint32_t max_items, unsigned max_depth)
{
	const uint8_t *p = bytes;
	uint64_t left[STACK] = {
		1}; /* values still to come, by depth; a loop, for a stranger chooses the depth */
	unsigned depth = 0;
	size_t at = 0;
	uint64_t items = 0;

	if (max_depth >= STACK)
		max_depth = STACK - 1;
	for (;;) {
		while (left[depth] == 0) {
			if (depth == 0)
				return at == size ? 0 : NPU_E_MALFORMED;
			depth--;
		}
		left[depth]--;
		if (at >= size)
			return NPU_E_MALFORMED;
		if (++items > max_items)
			return NPU_E_TOO_LARGE;
		struct tag t = tag_of(p[at++]);
		if (t.counts == REFUSED || size - at < t.width)
			return NPU_E_MALFORMED;
		uint64_t count = 0;
		for (unsigned i = 0; i < t.width; i++)
			count = count << 8 | p[at++];
		if (t.counts == COUNT_BYTES)
			t.body = count;
		else if (t.counts == COUNT_ITEMS)
			t.items = count;
		else if (t.counts == COUNT_PAIRS)
			t.items = 2 * count;
		if (t.body > size - at || t.items > size - at)
			return NPU_E_MALFORMED;
		at += t.body;
		if (t.items > max_items || (t.contains && depth == max_depth))
			return NPU_E_TOO_LARGE;
		if (t.items)
			left[++depth] = t.items;
	}
}
