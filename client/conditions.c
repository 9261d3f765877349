#define _GNU_SOURCE 1
#include "conditions.h"
#include "exit.h"
#include "npu.h"
#include "table.h"
#include <stdlib.h>

double conditions_load(void)
{
	double load[1];
	return getloadavg(load, 1) == 1 ? load[0] : 0;
}

json_t *conditions_of(const char *socket, double load, int *status)
{
	const char *ticket = getenv("NPU_TICKET");
	npu_client *c;
	struct npu_status s;
	json_t *about = NULL;

	int r = npu_connect(&c, socket, "npu-bench");
	if (r == 0)
		r = npu_status(c, &s);
	if (r)
		*status = exit_npu(c, r, NULL);
	else if (!(about = json_pack("{s:o,s:I,s:o,s:o,s:o,s:I}", "load", table_json_real(load), "clients",
				     (json_int_t)s.clients - 1, "device", table_json_string(s.device),
				     "health", table_json_string(s.health), "version",
				     table_json_string(s.version), "ticket",
				     (json_int_t)(ticket ? strtoll(ticket, NULL, 10) : 0))))
		*status = exit_complain(EX_TEMPFAIL, "not enough memory");
	npu_close(c);
	return about;
}
