#include "replies.h"
#include <stdlib.h>
#include <string.h>

void reply_forget(struct reply *r)
{
	link_remove(&r->in_client);
	r->client->count--;
	free(r->bytes);
	free(r);
}

void reply_keep(struct reply *r, const void *bytes, size_t size)
{
	r->bytes = malloc(size ? size : 1);
	if (!r->bytes) {
		reply_forget(r);
		return;
	}
	memcpy(r->bytes, bytes, size);
	r->size = size;
}

static void client_free(struct reply_client *c)
{
	link_remove(&c->in_replies);
	link_each(at, &c->kept) reply_forget(link_of(at, struct reply, in_client));
	free(c);
}

void replies_init(struct replies *r)
{
	link_init(&r->clients);
}

void replies_fini(struct replies *r)
{
	link_each(at, &r->clients) client_free(link_of(at, struct reply_client, in_replies));
}

void replies_expire(struct replies *r, uint64_t now)
{
	link_each(at, &r->clients)
	{
		struct reply_client *c = link_of(at, struct reply_client, in_replies);
		if (c->sessions == 0 && now >= c->until_ms)
			client_free(c);
	}
}

struct reply_client *replies_attach(struct replies *r, uid_t uid, const void *nonce, size_t nonce_size,
				    uint64_t now)
{
	replies_expire(r, now);
	link_each(at, &r->clients)
	{
		struct reply_client *c = link_of(at, struct reply_client, in_replies);
		if (nonce_size && c->uid == uid && c->nonce_size == nonce_size &&
		    memcmp(c->nonce, nonce, nonce_size) == 0) {
			c->sessions++;
			return c;
		}
	}
	struct reply_client *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->uid = uid;
	c->nonce_size = nonce_size < sizeof c->nonce ? nonce_size : sizeof c->nonce;
	if (c->nonce_size)
		memcpy(c->nonce, nonce, c->nonce_size);
	c->sessions = 1;
	link_init(&c->kept);
	link_append(&r->clients, &c->in_replies);
	return c;
}

void replies_detach(struct replies *r, struct reply_client *c, uint64_t until_ms)
{
	if (!c || --c->sessions)
		return;
	if (c->nonce_size == 0 || link_empty(&c->kept)) {
		client_free(c);
		return;
	}
	c->until_ms = until_ms;
	link_remove(&c->in_replies);
	link_append(&r->clients, &c->in_replies);

	unsigned gone = 0;
	struct reply_client *oldest = NULL;
	link_each(at, &r->clients)
	{
		struct reply_client *other = link_of(at, struct reply_client, in_replies);
		if (other->uid != c->uid || other->sessions)
			continue;
		gone++;
		if (!oldest)
			oldest = other;
	}
	if (gone > REPLIES_GONE)
		client_free(oldest);
}

enum reply_found reply_find(struct reply_client *c, uint64_t req, uint64_t print, struct reply **out)
{
	struct reply *oldest = NULL;

	link_each(at, &c->kept)
	{
		struct reply *r = link_of(at, struct reply, in_client);
		if (r->req == req) {
			if (r->print != print)
				return REPLY_OTHER;
			*out = r;
			return r->bytes ? REPLY_DONE : REPLY_PENDING;
		}
		if (r->bytes && !oldest)
			oldest = r;
	}
	/* Those that are worked on stay, beyond the limit too: requests in flight have one of their own. */
	if (c->count >= REPLIES_KEPT && oldest)
		reply_forget(oldest);
	struct reply *r = calloc(1, sizeof *r);
	if (!r)
		return REPLY_NO_MEMORY;
	r->client = c;
	r->req = req;
	r->print = print;
	link_append(&c->kept, &r->in_client);
	c->count++;
	*out = r;
	return REPLY_NEW;
}
