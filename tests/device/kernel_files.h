/*
 * Kernel files for tests, as the tools would write them: containers whose structure is whole and whose kernel
 * is empty. The instruction stream holds the geometry, which is how the test device beneath XRT learns it.
 */
#ifndef NPUD_KERNEL_FILES_H
#define NPUD_KERNEL_FILES_H

#include "device.h"
#include <stdbool.h>

/* An xclbin2 container with one kernel of the arguments of a launch. Malloced; *size bytes. */
unsigned char *kernel_files_xclbin(const char *kernel, size_t *size);

/* A small ELF of either class with a section of text. Malloced. */
unsigned char *kernel_files_elf(bool wide, size_t *size);

#define KERNEL_FILES_INSTRUCTIONS 32 /* bytes of a stream */
void kernel_files_instructions(const struct design *d, unsigned char to[KERNEL_FILES_INSTRUCTIONS]);

/*
 * Writes the set into an existing directory: the manifest, and an image and instructions for each of the
 * designs, of which rows, kd, nd, layout and image are read and file, kernel and instructions are filled in.
 */
bool kernel_files_write(const char *directory, struct design *designs, unsigned count);

#endif
