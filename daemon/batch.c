#include "batch.h"

void batch_init(struct batch *b)
{
	link_init(&b->clients);
	link_init(&b->answered);
	b->now = 0;
}

void batch_client_init(struct batch_client *c)
{
	link_init(&c->in_clients);
	link_init(&c->runs);
	link_init(&c->in_answered);
	c->had = 0;
	c->credit = 0;
}

static struct batch_run *oldest(const struct batch_client *c)
{
	return link_of(c->runs.next, struct batch_run, in_runs);
}

static uint64_t waited_until(const struct batch_client *c)
{
	return c->answered_ns + c->took_ns / BATCH_PATIENCE;
}

/* While passes run it has the processors against it: soon enough is a pass's time for who is not waited for.
 */
static void came_back(struct batch_client *c, uint64_t now_ns)
{
	link_remove(&c->in_answered);
	if (c->credit > 0 && now_ns > waited_until(c))
		c->credit = -BATCH_DOUBT;
	else if (c->credit <= 0 && now_ns <= c->answered_ns + c->took_ns)
		c->credit++;
}

void batch_add(struct batch *b, struct batch_client *c, struct batch_run *run, uint64_t now_ns)
{
	if (!link_empty(&c->in_answered))
		came_back(c, now_ns);
	if (link_empty(&c->runs)) {
		link_append(&b->clients, &c->in_clients);
		if (c->had < b->now)
			c->had = b->now;
	}
	run->client = c;
	run->taken = 0;
	link_append(&c->runs, &run->in_runs);
}

void batch_remove(struct batch_run *run)
{
	if (!run->client)
		return;
	link_remove(&run->in_runs);
	if (link_empty(&run->client->runs))
		link_remove(&run->client->in_clients);
	run->client = NULL;
}

/* The client's oldest run of `key`, NULL where it has none. */
static struct batch_run *run_of(const struct batch_client *c, uint64_t key)
{
	for (struct link *at = c->runs.next; at != &c->runs; at = at->next) {
		struct batch_run *run = link_of(at, struct batch_run, in_runs);
		if (run->key == key)
			return run;
	}
	return NULL;
}

/* Of the clients that wait (for `key`, if `keyed`) the one that has had least; the longer waiting one of two.
 */
static struct batch_client *neediest(const struct batch *b, bool keyed, uint64_t key)
{
	struct batch_client *least = NULL;
	for (struct link *at = b->clients.next; at != &b->clients; at = at->next) {
		struct batch_client *c = link_of(at, struct batch_client, in_clients);
		if ((!keyed || run_of(c, key)) && (!least || c->had < least->had))
			least = c;
	}
	return least;
}

static void give(struct batch_part *parts, unsigned *count, struct batch_run *run)
{
	unsigned i = 0;
	while (i < *count && parts[i].run != run)
		i++;
	if (i == *count)
		parts[(*count)++] = (struct batch_part){run, run->taken, 0};
	parts[i].rows++;
	run->taken++;
}

unsigned batch_take(struct batch *b, uint32_t limit, struct batch_part *parts)
{
	struct batch_client *c = neediest(b, false, 0);
	unsigned count = 0;

	if (!c)
		return 0;
	uint64_t key = oldest(c)->key;
	b->now = c->had;
	for (uint32_t row = 0; row < limit && (c = neediest(b, true, key)); row++) {
		struct batch_run *run = run_of(c, key);
		give(parts, &count, run);
		c->had += BATCH_UNIT / run->weight;
		if (run->taken == run->rows)
			batch_remove(run);
	}
	return count;
}

uint64_t batch_waiting(const struct batch *b, uint64_t key)
{
	uint64_t rows = 0;
	for (struct link *at = b->clients.next; at != &b->clients; at = at->next) {
		const struct batch_client *c = link_of(at, struct batch_client, in_clients);
		for (struct link *in = c->runs.next; in != &c->runs; in = in->next) {
			const struct batch_run *run = link_of(in, struct batch_run, in_runs);
			rows += run->key == key ? run->rows - run->taken : 0;
		}
	}
	return rows;
}

void batch_answered(struct batch *b, struct batch_client *c, uint64_t key, uint64_t now_ns, uint64_t took_ns)
{
	link_remove(&c->in_answered);
	if (!link_empty(&c->runs)) /* it has asked already */
		return;
	c->key = key;
	c->answered_ns = now_ns;
	c->took_ns = took_ns;
	link_append(&b->answered, &c->in_answered);
}

void batch_leave(struct batch_client *c)
{
	link_remove(&c->in_answered);
}

uint64_t batch_gathers(const struct batch *b, uint32_t limit, uint64_t now_ns)
{
	const struct batch_client *next = neediest(b, false, 0);
	uint64_t until = 0;

	if (!next)
		return 0;
	uint64_t key = oldest(next)->key;
	for (struct link *at = b->answered.next; at != &b->answered; at = at->next) {
		const struct batch_client *c = link_of(at, struct batch_client, in_answered);
		if (c->credit > 0 && c->key == key && waited_until(c) > until)
			until = waited_until(c);
	}
	return until > now_ns && batch_waiting(b, key) < limit ? until : 0;
}
