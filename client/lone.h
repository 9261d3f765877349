/* A head of this process's own: its own weights, its own pass; what programs do that share nothing. One
 * thread. */
#ifndef LONE_H
#define LONE_H

#include "err.h"
#include <stdint.h>

struct lone;

/* Packs the head (`tensor` NULL: the model's) and makes `threads` threads. *nv and *h are its shape. */
int lone_open(struct lone **out, const char *model, const char *tensor, unsigned threads, uint32_t *nv,
	      uint32_t *h, struct err *err);
void lone_close(struct lone *l); /* NULL is fine */

/* One row x[h]: logits[nv], or with logits NULL the best word. NO_MEMORY. */
int lone_run(struct lone *l, const float *x, float *logits, uint32_t *id, float *value);

#endif
