/* opening: npu_head_open as a program's user sees it: its progress, and what ctrl-C does meanwhile. One
 * thread. */
#ifndef OPENING_H
#define OPENING_H

#include "npu.h"

/*
 * Opens the head and shows how far it is. The first SIGINT or SIGTERM (of output_catch) cancels it in good
 * order. Returns 0 or an exit status, having complained; `*head` is the caller's, whatever is returned,
 * unless it is NULL.
 */
int opening_head(npu_client *c, const char *model, struct npu_head_options options, npu_head **head,
		 struct npu_head_info *info);

#endif
