/*
 * What opening a head would need, before anybody loads it: its file is read on a worker until its content is
 * known, then the request is answered. Loop thread only.
 */
#ifndef NPUD_PLAN_H
#define NPUD_PLAN_H

#include "handles.h"

struct plan;

/* Begins one for `r`, whose answer follows; returns LATER. `want` as for handle_open. IO, NO_MEMORY. */
int plan_begin(struct request *r, const struct file *file, struct load_request *want, struct err *err);

/* The request is answered or given up. */
void plan_leave(struct plan *p);

#endif
