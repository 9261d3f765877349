/*
 * Whether the files of a kernel are what they say, before XRT sees them: it crashes on damaged ones. What is
 * checked is structure: counts, offsets, names, and that the kernel is there with the arguments of a launch.
 * Pure; any thread. Every refusal leaves a sentence in `why`.
 */
#ifndef NPUD_KIMAGE_H
#define NPUD_KIMAGE_H

#include "device.h"
#include <stdbool.h>

/* An xclbin2 container in which a kernel of this name takes the arguments of a launch. */
bool kimage_xclbin(const void *bytes, size_t size, const char *kernel, struct device_why *why);

/* A little-endian ELF of either class. */
bool kimage_elf(const void *bytes, size_t size, struct device_why *why);

/* An instruction stream: a transaction header that gives the file's own size, and operations that fit it. */
bool kimage_instructions(const void *bytes, size_t size, struct device_why *why);

/* Reads the files of a design and checks them. 0, BAD_KERNEL, DENIED or NO_MEMORY. */
int kimage_design(const struct design *d, struct device_why *why);

#endif
