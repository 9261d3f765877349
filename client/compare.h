/* compare: two files of raw float32, bit for bit; the command of npu-head. One thread. */
#ifndef NPU_COMPARE_H
#define NPU_COMPARE_H

#include <stdbool.h>

/* Says on stdout whether and where they differ; "-" is stdin, for one of them. The exit status: 0,
 * EXIT_DIFFERS or that of a failure, which was said. */
int compare(const char *a, const char *b, bool json);

#endif
