/* rows: activations through what is resident, and through what is packed for the one call. */
#ifndef NPU_ROWS_H
#define NPU_ROWS_H

#include "head.h"

/*
 * Multiplies by a routed expert: `fields` name it, of `expert` (which is no handle) the client, the session,
 * nv and h are used. Waits; failures in client_err.
 */
int rows_through_expert(npu_head *expert, const struct req_gemm_run *fields, const float *x, size_t rows,
			float *y, struct npu_run_info *info);

#endif
