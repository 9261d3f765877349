/* The handler that shows what was counted. */
#include "own.h"
#include "request.h"

int on_metrics(struct request *r, const struct req_metrics *q, struct rep_metrics *a, struct err *err)
{
	size_t size;
	cleanup(freep) char *text = metrics_text(r->server, &size);

	(void)q;
	if (!text)
		return err_set(err, NPU_E_NO_MEMORY, "no memory for the metrics");
	a->text = (struct proto_bytes){text, size};
	request_reply(r, a); /* here, for the text is ours */
	return LATER;
}
