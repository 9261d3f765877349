/*
 * The place where npud looks for a kernel set that it was given, and how one gets there. The place is a link
 * to a directory beside it, PLACE.npud-XXXXXX, that is never changed once it is linked: a daemon that is
 * running goes on with the set it opened. PLACE.old is a link to the set before, for undo. Whoever may write
 * the directory around it may do this; others are kept out by a lock on that directory for as long as it
 * takes.
 *
 * 0, ABSENT (no such set), DENIED, NO_MEMORY, BAD_KERNEL (the set is no good), BAD_CALL (something else is at
 * the place), FAULT (the file system failed); with a sentence. Whatever fails, the place is as it was.
 */
#ifndef NPUD_KERNELPLACE_H
#define NPUD_KERNELPLACE_H

#include "kernelset.h"

/*
 * Checks the set in `from`, copies it and checks the copy; then it is the place's. A directory without a
 * manifest gets one if its files are named as mlir-aie's matrix multiplication names them,
 * final_MxKxN[_...].xclbin and insts_MxKxN[_...].bin or .txt: those are row-major, and their kernel is
 * MLIR_AIE.
 */
int kernelplace_import(const char *place, const char *from, struct device_why *why);

/* Leaves the place empty. */
int kernelplace_remove(const char *place, struct device_why *why);

/* The set before the last import, remove or undo is the place's again. */
int kernelplace_undo(const char *place, struct device_why *why);

#endif
