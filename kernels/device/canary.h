/*
 * The canary: a launch whose answer is known. Every row has a few codes that are not zero, so that what every
 * column must be is little work for the host, whatever the size of the tile. Pure; any thread.
 */
#ifndef NPUD_CANARY_H
#define NPUD_CANARY_H

#include "kernels.h"

/* Codes for a tile where no real one is at hand: kd * nd bytes. */
void canary_codes(int8_t *codes, size_t count);

/* The activations of a canary of rows x kd. */
void canary_rows(int8_t *q, uint32_t rows, uint32_t kd);

/* Whether acc[rows][nd] is the answer for the tile. */
bool canary_right(const struct tile *t, const int8_t *q, uint32_t rows, const int32_t *acc);

#endif
