#include "comparison.h"
#include <stdlib.h>
#include <string.h>

void comparison_init(struct comparison *c, unsigned rounds)
{
	*c = (struct comparison){.rounds = rounds};
}

void comparison_fini(struct comparison *c)
{
	free(c->samples);
	*c = (struct comparison){0};
}

bool comparison_add(struct comparison *c, unsigned side, unsigned round, const struct comparison_key *key,
		    double seconds)
{
	if (c->count == c->room) {
		size_t room = c->room ? 2 * c->room : 256;
		void *grown = realloc(c->samples, room * sizeof *c->samples);
		if (!grown)
			return false;
		c->samples = grown;
		c->room = room;
	}
	c->samples[c->count++] = (struct comparison_sample){*key, side, round, seconds};
	return true;
}

/*
 * How well two rows go together: 0 not at all, 1 by a declared exception, which *why names, 2 by phase, role
 * and M, 3 and on the same path. M of the host is what it computes; a launch computes all its rows.
 */
static int match(const struct comparison_key *a, const struct comparison_key *b, const char **why)
{
	const struct comparison_key *host = a->device ? b : a, *device = a->device ? a : b;

	*why = "";
	if (strcmp(a->phase, b->phase) != 0 || strcmp(a->role, b->role) != 0)
		return 0;
	if (a->m == b->m)
		return a->device == b->device ? 3 : 2;
	if (device->device && (host->device || host->m <= host->asked)) {
		*why = "a launch computes all its rows";
		return 1;
	}
	if (a->m <= a->asked && b->m <= b->asked) {
		*why = "the batch limit cuts the rows";
		return 1;
	}
	return 0;
}

static bool same(const struct comparison_key *a, const struct comparison_key *b)
{
	const char *why;
	return match(a, b, &why) == 3;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *values, size_t count)
{
	qsort(values, count, sizeof *values, by_size);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Of one side's row in one round; 0: it has none. `room` is for all samples. */
static double of_round(const struct comparison *c, unsigned side, unsigned round,
		       const struct comparison_key *key, double *room)
{
	size_t n = 0;

	for (size_t i = 0; i < c->count; i++) {
		const struct comparison_sample *s = &c->samples[i];
		if (s->side == side && s->round == round && same(&s->key, key))
			room[n++] = s->seconds;
	}
	return n ? median(room, n) : 0;
}

/* Fills in what a pair measured; `room` is for all samples and three values a round. */
static void measure(const struct comparison *c, struct comparison_pair *p, double *room)
{
	double *a = room, *b = a + c->rounds, *ratio = b + c->rounds, *rest = ratio + c->rounds;

	for (unsigned round = 0; round < c->rounds; round++) {
		double x = of_round(c, 0, round, &p->key[0], rest);
		double y = of_round(c, 1, round, &p->key[1], rest);
		if (x <= 0 || y <= 0)
			continue;
		a[p->rounds] = x;
		b[p->rounds] = y;
		ratio[p->rounds++] = y / x;
	}
	if (!p->rounds)
		return;
	p->seconds[0] = median(a, p->rounds);
	p->seconds[1] = median(b, p->rounds);
	p->ratio = median(ratio, p->rounds);
	p->low = ratio[0];
	p->high = ratio[p->rounds - 1];
}

/* The rows of a side, in the order in which they were first seen, into keys[]. */
static size_t rows_of(const struct comparison *c, unsigned side, struct comparison_key *keys)
{
	size_t n = 0;

	for (size_t i = 0; i < c->count; i++) {
		size_t j = 0;
		while (j < n && !same(&keys[j], &c->samples[i].key))
			j++;
		if (j == n && c->samples[i].side == side)
			keys[n++] = c->samples[i].key;
	}
	return n;
}

static bool paired(const struct comparison_result *r, unsigned side, const struct comparison_key *key)
{
	for (size_t i = 0; i < r->pair_count; i++)
		if (same(&r->pairs[i].key[side], key))
			return true;
	return false;
}

/* Pairs a side's row with what suits it best of the other's, if they were measured in one round at all. */
static bool pair(const struct comparison *c, struct comparison_result *r, unsigned side,
		 const struct comparison_key *row, const struct comparison_key *others, size_t count,
		 double *room)
{
	struct comparison_pair best = {0};
	int most = 0;

	for (size_t i = 0; i < count; i++) {
		struct comparison_pair p = {0};
		int suits = match(row, &others[i], &p.exception);
		p.key[side] = *row;
		p.key[!side] = others[i];
		if (suits <= most)
			continue;
		measure(c, &p, room);
		if (!p.rounds)
			continue;
		most = suits;
		best = p;
	}
	if (most)
		r->pairs[r->pair_count++] = best;
	return most > 0;
}

bool comparison_match(const struct comparison *c, struct comparison_result *out)
{
	size_t most = c->count + 1;
	struct comparison_key *rows[2] = {calloc(most, sizeof **rows), calloc(most, sizeof **rows)};
	double *room = calloc(3 * (size_t)c->rounds + most, sizeof *room);

	*out = (struct comparison_result){
		.pairs = calloc(most, sizeof *out->pairs),
		.unmatched = {calloc(most, sizeof **rows), calloc(most, sizeof **rows)},
	};
	bool good = rows[0] && rows[1] && room && out->pairs && out->unmatched[0] && out->unmatched[1];
	if (good) {
		size_t counts[2] = {rows_of(c, 0, rows[0]), rows_of(c, 1, rows[1])};
		/* A row may stand for several of the other side: only what is left of that one asks. */
		for (unsigned side = 0; side < 2; side++)
			for (size_t i = 0; i < counts[side]; i++) {
				const struct comparison_key *row = &rows[side][i];
				if (!paired(out, side, row) &&
				    !pair(c, out, side, row, rows[!side], counts[!side], room) && row->m)
					out->unmatched[side][out->unmatched_count[side]++] = *row;
			}
	}
	free(rows[0]);
	free(rows[1]);
	free(room);
	return good;
}

void comparison_result_fini(struct comparison_result *r)
{
	free(r->pairs);
	free(r->unmatched[0]);
	free(r->unmatched[1]);
	*r = (struct comparison_result){0};
}

bool comparison_within(const struct comparison_pair *p, double percent, bool one_sided)
{
	double most = 1 + percent / 100;
	return p->ratio <= most && (one_sided || p->ratio * most >= 1);
}
