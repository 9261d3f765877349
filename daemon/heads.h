/* What the operations on heads and on what is resident have in common. Loop thread only. */
#ifndef NPUD_HEADS_H
#define NPUD_HEADS_H

#include "handles.h"

/*
 * What a head.open asks for, of the model that *file belongs to; out->tensor is the caller's to free or to
 * give away. NO_SUCH_HANDLE, BAD_VALUE, NO_MEMORY.
 */
int head_request(struct load_request *out, const struct file **file, struct session *s,
		 const struct req_head_open *q, struct err *err);

/* How a listing shows `o`; borrows from it and from `digest`. */
struct row_head head_row(const struct object *o, char digest[33]);

#endif
