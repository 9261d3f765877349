/* Tickets by libnpu's calls, against the daemon of NPUD_SOCKET: what each gives and how each ends. */
#include <npu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define must(what)                                                               \
	do {                                                                     \
		if (!(what)) {                                                   \
			fprintf(stderr, "FAIL: line %d: %s\n", __LINE__, #what); \
			exit(1);                                                 \
		}                                                                \
	} while (0)

static int count(void *arg, const struct npu_ticket_info *row)
{
	must(row->ticket);
	++*(unsigned *)arg;
	return 0;
}

static void waited(void *arg, npu_call *call, int result)
{
	(void)call;
	*(int *)arg = result;
}

int main(void)
{
	npu_client *a = NULL, *b = NULL;
	npu_ticket *first = NULL, *second = NULL, *inner = NULL;
	struct npu_ticket_info info, other;
	char text[NPU_TICKET_TEXT];
	unsigned rows = 0, before = 0;
	bool draining = true;
	int ended = 1;

	must(npu_connect(&a, NULL, "a") == 0 && npu_connect(&b, NULL, "b") == 0);
	must(npu_ticket_take(a, &(struct npu_ticket_options){.label = "first"}, -1, &first, &info) == 0);
	must(strcmp(info.state, "granted") == 0 && info.remaining_ms > 0 && strcmp(info.label, "first") == 0);
	must(npu_ticket_confirm(first, 0, NULL, &info) == 0); /* twice is fine */

	/* Refused at once with the holder, and waiting no longer than asked. */
	must(npu_ticket_take(b, &(struct npu_ticket_options){.now = true}, -1, &second, NULL) == NPU_E_HELD);
	must(!second && strstr(npu_error_text(b), "first"));
	must(npu_ticket_take(b, NULL, 50, &second, NULL) == NPU_E_TIMED_OUT && !second);
	must(npu_tickets(a, count, &rows, &draining) == 0 && rows == 1 && !draining);

	must(npu_ticket_request(b, NULL, &second, &other) == 0 && strcmp(other.state, "queued") == 0);
	must(npu_ticket_why(b, other.ticket, &other, count, NULL, &before) == 0 && before == 1);
	must(npu_ticket_confirm(second, 0, NULL, NULL) == NPU_E_TICKET_OVER);
	must(npu_ticket_renew(first, 60000, NULL) == NPU_E_HELD); /* for somebody waits */

	/* One that joins needs no turn. */
	must(npu_ticket_take(b, &(struct npu_ticket_options){.join = npu_ticket_text(first, text)}, 0, &inner,
			     &info) == 0);
	must(info.joined && npu_ticket_release(inner) == 0);

	must(npu_ticket_wait_start(second, 20000, &other, waited, &ended, NULL) == 0);
	must(npu_ticket_release(first) == 0);
	while (ended == 1)
		must(npu_dispatch(b, 20000) >= 0);
	must(ended == 0 && strcmp(other.state, "offered") == 0);
	must(npu_ticket_confirm(second, 0, NULL, &other) == 0 && strcmp(other.state, "granted") == 0);
	must(npu_ticket_renew(second, 60000, &other) == 0 && other.remaining_ms <= 60000);
	must(npu_ticket_revoke(b, other.ticket, "seen enough", &other) == 0);
	must(strcmp(other.state, "expiring") == 0 && strstr(other.reason, "seen enough"));
	must(npu_ticket_release(second) == 0);
	must(npu_ticket_show(a, other.ticket, &info) == 0 && strcmp(info.state, "revoked") == 0);
	must(npu_ticket_show(a, 999, &info) == NPU_E_NO_SUCH_TICKET);
	must(npu_ticket_release(NULL) == 0);
	npu_close(a);
	npu_close(b);
	return 0;
}
