/* A heap whose top is the worst of the best, once there are k; before, what came in any order. */
#include "top.h"
#include <stdbool.h>

static bool worse(float a, uint32_t id_a, float b, uint32_t id_b)
{
	if (a < b)
		return true;
	if (a > b)
		return false;
	bool nan_a = a != a, nan_b = b != b;
	return nan_a == nan_b ? id_a > id_b : nan_a;
}

static void swap(struct top *t, uint32_t a, uint32_t b)
{
	uint32_t id = t->ids[a];
	float value = t->values[a];

	t->ids[a] = t->ids[b];
	t->values[a] = t->values[b];
	t->ids[b] = id;
	t->values[b] = value;
}

static bool worse_at(const struct top *t, uint32_t a, uint32_t b)
{
	return worse(t->values[a], t->ids[a], t->values[b], t->ids[b]);
}

/* Moves the entry at `at` down among the first `size`. */
static void sink(struct top *t, uint32_t size, uint32_t at)
{
	for (;;) {
		uint32_t least = at, left = 2 * at + 1, right = left + 1;
		if (left < size && worse_at(t, left, least))
			least = left;
		if (right < size && worse_at(t, right, least))
			least = right;
		if (least == at)
			return;
		swap(t, at, least);
		at = least;
	}
}

static void heap_make(struct top *t)
{
	for (uint32_t i = t->size / 2; i-- > 0;)
		sink(t, t->size, i);
}

static void add(struct top *t, uint32_t id, float value)
{
	if (t->size < t->k) {
		t->ids[t->size] = id;
		t->values[t->size++] = value;
		if (t->size == t->k)
			heap_make(t);
	} else if (worse(t->values[0], t->ids[0], value, id)) {
		t->ids[0] = id;
		t->values[0] = value;
		sink(t, t->size, 0);
	}
}

/* Whether any of the values can be among the best of a full heap: without branches, as vector code. */
static bool any(const struct top *t, const float *values, uint32_t count)
{
	float least = t->values[0];
	unsigned found = least != least;

	for (uint32_t i = 0; i < count; i++)
		found |= values[i] >= least;
	return found;
}

void top_add(struct top *t, uint32_t first, const float *values, uint32_t count)
{
	if (t->size == t->k && !any(t, values, count))
		return;
	for (uint32_t i = 0; i < count; i++)
		add(t, first + i, values[i]);
}

void top_merge(struct top *t, const struct top *from)
{
	for (uint32_t i = 0; i < from->size; i++)
		add(t, from->ids[i], from->values[i]);
}

void top_sort(struct top *t)
{
	if (t->size < t->k)
		heap_make(t);
	for (uint32_t size = t->size; size-- > 1;) { /* the worst goes to the end, again and again */
		swap(t, 0, size);
		sink(t, size, 0);
	}
}
