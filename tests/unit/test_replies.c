#include "proto.h"
#include "replies.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct replies replies;

static void up(void)
{
	replies_init(&replies);
}

static void down(void)
{
	replies_fini(&replies);
}

TestSuite(replies, .init = up, .fini = down);

static struct reply_client *attach(uid_t uid, const char *nonce, uint64_t now)
{
	struct reply_client *c = replies_attach(&replies, uid, nonce, strlen(nonce), now);
	cr_assert(c);
	return c;
}

static void answered(struct reply_client *c, uint64_t req)
{
	struct reply *r;
	cr_assert_eq(reply_find(c, req, req * 7, &r), REPLY_NEW);
	reply_keep(r, &req, sizeof req);
}

static enum reply_found look(struct reply_client *c, uint64_t req)
{
	struct reply *r;
	enum reply_found found = reply_find(c, req, req * 7, &r);
	if (found == REPLY_NEW)
		reply_forget(r);
	if (found == REPLY_DONE)
		cr_expect(r->size == sizeof req && memcmp(r->bytes, &req, sizeof req) == 0);
	return found;
}

Test(replies, a_repeat_finds_the_answer)
{
	struct reply_client *c = attach(1000, "nonce", 0);
	answered(c, 5);
	cr_expect_eq(look(c, 5), REPLY_DONE);
	cr_expect_eq(look(c, 6), REPLY_NEW);
	replies_detach(&replies, c, 0);
}

Test(replies, a_repeat_of_what_is_worked_on_is_pending)
{
	struct reply_client *c = attach(1000, "nonce", 0);
	struct reply *first, *second;
	cr_assert_eq(reply_find(c, 5, 1, &first), REPLY_NEW);
	cr_assert_eq(reply_find(c, 5, 1, &second), REPLY_PENDING);
	cr_expect_eq(first, second);
	reply_forget(first);
	cr_expect_eq(look(c, 5), REPLY_NEW);
	replies_detach(&replies, c, 0);
}

Test(replies, a_number_used_for_another_request_is_told_apart)
{
	struct reply_client *c = attach(1000, "nonce", 0);
	struct reply *r;
	answered(c, 5);
	cr_expect_eq(reply_find(c, 5, 999, &r), REPLY_OTHER);
	replies_detach(&replies, c, 0);
}

Test(replies, answers_outlive_the_connection_until_their_time_is_over)
{
	struct reply_client *c = attach(1000, "nonce", 0);
	answered(c, 5);
	replies_detach(&replies, c, 30000);
	c = attach(1000, "nonce", 29999);
	cr_expect_eq(look(c, 5), REPLY_DONE);
	replies_detach(&replies, c, 60000);
	c = attach(1000, "nonce", 60000);
	cr_expect_eq(look(c, 5), REPLY_NEW);
	replies_detach(&replies, c, 0);
}

Test(replies, two_connections_of_a_client_share_its_answers)
{
	struct reply_client *first = attach(1000, "nonce", 0), *second = attach(1000, "nonce", 0);
	answered(first, 5);
	replies_detach(&replies, first, 1);
	replies_expire(&replies, 100);
	cr_expect_eq(look(second, 5), REPLY_DONE);
	replies_detach(&replies, second, 0);
}

Test(replies, another_user_with_the_same_nonce_is_another_client)
{
	struct reply_client *mine = attach(1000, "nonce", 0), *theirs = attach(1001, "nonce", 0);
	answered(mine, 5);
	cr_expect_eq(look(theirs, 5), REPLY_NEW);
	replies_detach(&replies, mine, 0);
	replies_detach(&replies, theirs, 0);
}

Test(replies, no_nonce_is_nobody_else)
{
	struct reply_client *one = attach(1000, "", 0), *two = attach(1000, "", 0);
	answered(one, 5);
	cr_expect_eq(look(one, 5), REPLY_DONE);
	cr_expect_eq(look(two, 5), REPLY_NEW);
	replies_detach(&replies, one, 1000);
	replies_detach(&replies, two, 1000);
	cr_expect(link_empty(&replies.clients));
}

Test(replies, a_client_keeps_a_bounded_number_and_the_newest)
{
	struct reply_client *c = attach(1000, "nonce", 0);
	struct reply *pending;
	cr_assert_eq(reply_find(c, 0, 0, &pending), REPLY_NEW);
	for (uint64_t req = 1; req <= 10 * REPLIES_KEPT; req++)
		answered(c, req);
	cr_expect_eq(c->count, REPLIES_KEPT);
	cr_expect_eq(look(c, 10 * REPLIES_KEPT), REPLY_DONE);
	cr_expect_eq(look(c, 1), REPLY_NEW);
	struct reply *same;
	cr_expect_eq(reply_find(c, 0, 0, &same), REPLY_PENDING, "what is worked on was displaced");
	reply_forget(pending);
	replies_detach(&replies, c, 0);
}

Test(replies, one_users_many_clients_do_not_displace_anothers)
{
	struct reply_client *mine = attach(1000, "mine", 0);
	answered(mine, 5);
	replies_detach(&replies, mine, 1000);
	for (int i = 0; i < 10 * REPLIES_GONE; i++) {
		char nonce[16];
		snprintf(nonce, sizeof nonce, "%d", i);
		struct reply_client *c = attach(1001, nonce, 0);
		answered(c, 1);
		replies_detach(&replies, c, 1000);
	}
	cr_expect_eq(link_count(&replies.clients), REPLIES_GONE + 1);
	mine = attach(1000, "mine", 0);
	cr_expect_eq(look(mine, 5), REPLY_DONE);
	replies_detach(&replies, mine, 0);
}

Test(replies, operations_that_are_kept_have_small_answers)
{
	for (unsigned op = 0; op < OP_COUNT; op++) {
		const struct proto_message *m = &proto_ops[op].reply;
		for (size_t i = 0; proto_ops[op].repeat == REPEAT_ONCE && i < m->count; i++)
			cr_expect(m->fields[i].kind == KIND_u64 || m->fields[i].kind == KIND_f64 ||
					  m->fields[i].kind == KIND_flag || m->fields[i].bound <= 4096,
				  "%s: %s", proto_ops[op].wire, m->fields[i].name);
	}
}
