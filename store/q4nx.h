/*
 * Q4NX (FastFlowLM): matrices in chunks of 32 x 256 inside I8 tensors of a safetensors file. Nothing marks
 * them but their shape, so that a tensor is taken for Q4NX only where a known number of columns agrees.
 */
#ifndef NPUD_Q4NX_H
#define NPUD_Q4NX_H

#include "decode.h"
#include "matrix.h"

/* Whether the tensor could be Q4NX by type and last dimension; an honest int8 matrix can be, too. */
bool q4nx_may_be(const struct container *c, const struct tensor *t);

/*
 * Fills `m` for a tensor that may be Q4NX. NO_HEAD where the number of columns is not known or does not
 * agree, or the layout of Q8 codes cannot be told; BAD_VALUE where an option does not go with the kind.
 */
int q4nx_init(struct matrix *m, const struct container *c, const struct tensor *t,
	      const struct matrix_options *options, struct err *err);

#endif
