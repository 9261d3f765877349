/* XXH3 as it is called here. Debian builds the library for the oldest CPU; through its dispatch header it
 * picks AVX2 or AVX-512 when it runs. The static part lets a state live on the stack. */
#ifndef NPUD_XXH3_H
#define NPUD_XXH3_H

#define XXH_STATIC_LINKING_ONLY
#ifdef __x86_64__
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
