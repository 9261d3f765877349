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

/* What matters to any reading of a model; the tensors are the caller's. */
struct reading_ask {
	uint64_t file, k, tile;
	struct proto_bytes label, q8, layout;
	bool transpose, is_signed;
};

/* Of a request; several operations have these fields, each in a structure of its own. */
#define READING_ASK(q)                                                                                 \
	{                                                                                              \
		.file = (q)->file, .k = (q)->k, .tile = (q)->tile, .label = (q)->label, .q8 = (q)->q8, \
		.layout = (q)->layout, .transpose = (q)->transpose, .is_signed = (q)->is_signed        \
	}

/* Fills all of `out` but what the tensors are, and finds the file. Errors as head_request. */
int head_reading(struct load_request *out, const struct file **file, struct session *s,
		 const struct reading_ask *q, struct err *err);

/* head.wait and its like: how far the handle is that `r` waits for. */
void head_answer_wait(struct request *r);

/* One page of what is resident and has the role of a head, or any other, after id `after`. Returns how many;
 * *more: there are more. */
#define HEAD_ROWS 64
struct head_page {
	struct row_head rows[HEAD_ROWS];
	char digests[HEAD_ROWS][33];
};
size_t head_page(struct head_page *page, struct server *s, bool heads, uint64_t after, bool *more);

/* How a listing shows `o`; borrows from it and from `digest`. */
struct row_head head_row(const struct object *o, char digest[33]);

#endif
