/*
 * JSON that a stranger's file holds, bounded before it is parsed. Any thread.
 */
#ifndef NPUD_JSON_H
#define NPUD_JSON_H

#include "container.h"
#include <jansson.h>

void json_freep(json_t **json);

/*
 * Python's writer, from which most config.json come, knows NaN and Infinity and numbers of any size, and of
 * two equal keys its reader takes the last; then numbers are doubles, and what is not finite is 0.
 */
enum json_dialect { JSON_STANDARD, JSON_PYTHON };

/*
 * Reads and parses the `size` bytes at `offset` of the container's file, an object; `what` names them in
 * messages ("the header"). The caller has compared `size` with the file's. BAD_CONTAINER, NO_MEMORY, IO,
 * FILE_CHANGED.
 */
int json_read(json_t **out, const struct container *c, const char *what, uint64_t offset, size_t size,
	      enum json_dialect dialect, struct err *err);

#endif
