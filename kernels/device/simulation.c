#include "simulation.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const fault_names[SIMULATION_FAULTS] = {
	[SIMULATION_GOOD] = "good", [SIMULATION_TIMEOUT] = "timeout", [SIMULATION_ERROR] = "error",
	[SIMULATION_HANG] = "hang", [SIMULATION_STALE] = "stale",     [SIMULATION_GARBAGE] = "garbage",
	[SIMULATION_SWAP] = "swap", [SIMULATION_FLIP] = "flip",
};

/* A whole number at *text, which moves behind it. */
static bool number(const char **text, uint64_t *out)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*out = strtoull(*text, &end, 10);
	*text = end;
	return errno == 0;
}

static bool setting(struct simulation *s, const char *name, const char *value)
{
	const struct {
		const char *name;
		uint64_t *to;
	} known[] = {
		{"latency", &s->latency_us},	   {"contexts", &s->contexts_max}, {"others", &s->others},
		{"heap", &s->heap_bytes},	   {"watchdog", &s->watchdog_ms},  {"lost", &s->lost_ms},
		{"no-context", &s->no_context_ms},
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (strcmp(known[i].name, name) != 0)
			continue;
		if (!number(&value, known[i].to))
			return false;
		if (known[i].to == &s->no_context_ms)
			return *value++ == '@' && number(&value, &s->no_context_at) && !*value;
		return !*value;
	}
	return false;
}

static bool rule(struct simulation *s, const char *word)
{
	size_t length = strcspn(word, "@/");
	const char *at = word + length + 1;
	struct simulation_rule r = {.first = 1, .last = UINT64_MAX, .every = 1};

	for (int f = SIMULATION_GOOD + 1; f < SIMULATION_FAULTS; f++)
		if (strlen(fault_names[f]) == length && strncmp(fault_names[f], word, length) == 0)
			r.fault = (enum simulation_fault)f;
	if (r.fault == SIMULATION_GOOD || !word[length] ||
	    s->rule_count == sizeof s->rules / sizeof *s->rules)
		return false;
	if (word[length] == '/') {
		if (!number(&at, &r.every) || r.every == 0)
			return false;
	} else {
		if (!number(&at, &r.first))
			return false;
		r.last = r.first;
		if (*at == '-' && (at++, !number(&at, &r.last)))
			return false;
	}
	if (*at)
		return false;
	s->rules[s->rule_count++] = r;
	return true;
}

bool simulation_parse(struct simulation *s, const char *settings, char *why, size_t room)
{
	*s = (struct simulation){.contexts_max = 16};
	for (const char *at = settings; *(at += strspn(at, " ,"));) {
		size_t length = strcspn(at, " ,");
		char word[64] = "";
		if (length < sizeof word)
			memcpy(word, at, length);
		char *equals = strchr(word, '=');
		if (equals)
			*equals = '\0';
		if (equals ? !setting(s, word, equals + 1) : !rule(s, word)) {
			snprintf(why, room,
				 "'%.*s' is no setting of a simulated device: write latency=US, contexts=N, "
				 "others=N, "
				 "heap=BYTES, "
				 "watchdog=MS, lost=MS, no-context=MS@N, or a fault as in timeout@3, "
				 "hang@5-6, flip/100",
				 (int)(length < 60 ? length : 60), at);
			return false;
		}
		at += length;
	}
	return true;
}

enum simulation_fault simulation_fault(const struct simulation *s, uint64_t launch)
{
	for (uint32_t i = 0; i < s->rule_count; i++) {
		const struct simulation_rule *r = &s->rules[i];
		if (launch >= r->first && launch <= r->last && launch % r->every == 0)
			return r->fault;
	}
	return SIMULATION_GOOD;
}

/* Where the hardware expects (k, n), written once more from the contract and from nothing else. */
static size_t place(uint32_t layout, uint32_t kd, uint32_t nd, uint32_t k, uint32_t n)
{
	if (layout == 0)
		return (size_t)k * nd + n;
	size_t block = (size_t)(n / 128) * (kd / 64) + k / 64;
	return block * 8192 + (k % 64 / 8) * 1024u + (n % 128 / 8) * 64u + (k % 8) * 8u + n % 8;
}

#define PANEL 512u /* rows of B in a panel of eight columns */

/* c[rows][n8...] += a[rows][k0...] x the panel, of which `columns` are there. */
static void add_panel(const int8_t *a, int16_t panel[PANEL][8], int32_t *c, uint32_t rows, uint32_t kd,
		      uint32_t nd, uint32_t depth, uint32_t columns)
{
	static const int8_t nothing[PANEL];

	for (uint32_t m = 0; m < rows; m++, a += kd) {
		int32_t sum[8] = {0};
		if (memcmp(a, nothing, depth) == 0)
			continue; /* as the rows are that a launch has and a job has not */
		for (uint32_t k = 0; k < depth; k++)
			for (uint32_t n = 0; n < 8; n++)
				sum[n] += (int16_t)a[k] * panel[k][n];
		for (uint32_t n = 0; n < columns; n++)
			c[(size_t)m * nd + n] += sum[n];
	}
}

void simulation_compute(const int8_t *a, const int8_t *b, int32_t *c, uint32_t rows, uint32_t kd, uint32_t nd,
			uint32_t layout)
{
	int16_t panel[PANEL][8] = {{0}};

	memset(c, 0, (size_t)rows * nd * sizeof *c);
	for (uint32_t n8 = 0; n8 < nd; n8 += 8)
		for (uint32_t k0 = 0; k0 < kd; k0 += PANEL) {
			uint32_t columns = nd - n8 < 8 ? nd - n8 : 8,
				 depth = kd - k0 < PANEL ? kd - k0 : PANEL;
			for (uint32_t k = 0; k < depth; k++)
				for (uint32_t n = 0; n < columns; n++)
					panel[k][n] = b[place(layout, kd, nd, k0 + k, n8 + n)];
			add_panel(a + k0, panel, c + n8, rows, kd, nd, depth, columns);
		}
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 31) * UINT64_C(0x7fb5d329728ea185);
	z = (z ^ z >> 27) * UINT64_C(0x81dadef4bc2dd44d);
	return z ^ z >> 33;
}

void simulation_spoil(enum simulation_fault fault, uint64_t launch, int32_t *c, uint32_t rows, uint32_t nd)
{
	uint64_t dice = mix(launch + 1);

	if (fault == SIMULATION_GARBAGE) {
		for (size_t i = 0; i < (size_t)rows * nd; i++)
			c[i] = (int32_t)(mix(dice + i) & 0xffffff);
	} else if (fault == SIMULATION_SWAP) {
		int32_t *last = c + (size_t)(rows - 1) * nd;
		for (uint32_t n = 0; n < nd; n++) {
			int32_t value = c[n];
			c[n] = last[n];
			last[n] = value;
		}
	} else if (fault == SIMULATION_FLIP) {
		uint32_t word = (uint32_t)c[dice % nd] ^ UINT32_C(1) << (dice >> 40) % 32;
		memcpy(&c[dice % nd], &word, sizeof word);
	}
}
