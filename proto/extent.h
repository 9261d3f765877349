/* Bounds a MessagePack message before anything is decoded or allocated. Any thread. */
#ifndef NPUD_EXTENT_H
#define NPUD_EXTENT_H

#include <stddef.h>
#include <stdint.h>

/*
 * 0 where the `size` bytes are exactly one value, nested at most `max_depth` containers deep, of at
 * most `max_items` values, that claims nothing it does not hold. MALFORMED: cut short, too long, an extension
 * type, a claim beyond the bytes. TOO_LARGE: too deep or too many items. Why: five bytes can make
 * msgpack-c reserve gigabytes (template_callback_array in its unpack.c allocates what is claimed).
 */
int proto_extent_check(const void *bytes, size_t size, uint32_t max_items, unsigned max_depth);

#endif
