/* What a client keeps of each hello. */
#include "connection.h"
#include <criterion/criterion.h>

static struct rep_hello hello(uint64_t session, const char token[16])
{
	return (struct rep_hello){.session = session,
				  .token = {token, 16},
				  .major = PROTO_MAJOR,
				  .max_request = 1,
				  .max_reply = 1,
				  .max_rows = 1};
}

static uint64_t greet(struct connection *c, uint64_t session, const char token[16])
{
	struct rep_hello h = hello(session, token);
	struct err err;
	cr_assert_eq(connection_greeted(c, &h, &err), 0);
	return connection_told(c)->session;
}

Test(connection, a_number_that_comes_again_is_another_session)
{
	struct connection c = CONNECTION_INIT;
	uint64_t first = greet(&c, 2, "0123456789abcdef");
	cr_assert_eq(greet(&c, 2, "0123456789abcdef"), first, "the same session");
	uint64_t second = greet(&c, 2, "of another life.");
	cr_assert_neq(second, first, "the daemon restarted, and counts from 1 again");
	cr_assert_neq(second, 0, "0 is no session");
	connection_fini(&c);
}

Test(connection, a_hello_without_a_token_is_refused)
{
	struct connection c = CONNECTION_INIT;
	struct rep_hello h = hello(1, "0123456789abcdef");
	struct err err;
	h.token.size = 15;
	cr_assert_eq(connection_greeted(&c, &h, &err), NPU_E_MALFORMED);
	connection_fini(&c);
}
