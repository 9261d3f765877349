#include "plan.h"
#include "heads.h"
#include "own.h"
#include <string.h>

#define EVICTS_SHOWN 64

struct plan {
	struct reader reader;
	struct request *request; /* NULL: it was given up */
	struct server *server;
	struct load *load;
	int result;
	struct err err;
};

static const char *outcome(enum residency_verdict verdict)
{
	switch (verdict) {
	case RESIDENCY_ATTACH:
		return "resident";
	case RESIDENCY_LOAD:
		return "fits";
	case RESIDENCY_EVICT:
		return "evicts";
	case RESIDENCY_TOO_LARGE:
		return "too-large";
	case RESIDENCY_PINNED:
		return "pinned";
	case RESIDENCY_NOTHING:
	case RESIDENCY_HELD:
		break;
	}
	return "waits";
}

static void answer(struct plan *p)
{
	struct residency *table = &p->server->residency;
	const struct residency_sums sums = residency_sums(table);
	const struct claim claim = object_claim(p->load);
	const struct resident *there, *evicts[EVICTS_SHOWN];
	struct row_head rows[EVICTS_SHOWN];
	char digests[EVICTS_SHOWN][33];
	size_t count, shown;

	table->budget = objects_budget(p->server);
	enum residency_verdict verdict = residency_plan(table, &claim, &there, evicts, EVICTS_SHOWN, &count);
	if (p->load->vast) /* it has no name that anything else could have */
		verdict = RESIDENCY_TOO_LARGE;
	shown = count < EVICTS_SHOWN ? count : EVICTS_SHOWN;
	for (size_t i = 0; i < shown; i++)
		rows[i] = head_row(link_of(evicts[i], struct object, resident), digests[i]);
	request_reply(
		p->request,
		&(struct rep_resident_plan){
			.outcome = PROTO_STR(outcome(verdict)),
			.id = verdict == RESIDENCY_ATTACH ? link_of(there, struct object, resident)->id : 0,
			.bytes = claim.bytes,
			.transient = claim.transient,
			.budget = table->budget,
			.used = sums.used,
			.held = sums.held,
			.loading = sums.loading,
			.pinned = sums.pinned,
			.freeable = sums.freeable,
			.evicts = {rows, shown},
		});
}

static void identifying(struct reader *r)
{
	struct plan *p = link_of(r, struct plan, reader);
	p->result = load_identify(p->load, &p->err);
}

static void on_identified(struct reader *r)
{
	struct plan *p = link_of(r, struct plan, reader);

	if (p->request && p->result)
		request_fail(p->request, &p->err);
	else if (p->request)
		answer(p);
	p->server->loads--;
	load_free(p->load);
	free(p);
}

int plan_begin(struct request *r, const struct file *file, struct load_request *want, struct err *err)
{
	struct server *s = r->server;
	cleanup(freep) char *tensor = want->tensor;
	cleanup(source_fini) struct source source = {.files = NULL};
	int result = session_source(r->session, file, &source, err);
	if (result)
		return result;
	struct plan *p = calloc(1, sizeof *p);
	if (!p || load_new(&p->load, want, &source, NULL, filing_secret(s), &s->kernels, s->threads)) {
		free(p);
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory", want->label);
	}
	p->load->placement.accelerator = &s->accelerator;
	p->load->known = &s->known;
	p->load->most = s->config.resident_bytes;
	p->load->reader = r->session->peer.uid;
	(void)take(&tensor);
	p->server = s;
	p->request = r;
	r->plan = p;
	r->state = REQUEST_WAITING;
	r->deadline_ms = UINT64_MAX;
	s->loads++;
	reader_begin(&p->reader, &s->readers, p->load->reader, identifying, on_identified);
	return LATER;
}

void plan_leave(struct plan *p)
{
	p->request = NULL;
	atomic_store(&p->load->stop, true);
}
