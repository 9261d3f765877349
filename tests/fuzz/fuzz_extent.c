/*
 * Property: what proto_extent_check accepts, msgpack-c decodes, and it takes exactly all bytes.
 */
#include "extent.h"
#include "proto.h"
#include <msgpack.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (proto_extent_check(bytes, size, PROTO_ITEMS_MAX, PROTO_DEPTH_MAX))
		return 0;

	msgpack_unpacked message;
	msgpack_unpacked_init(&message);
	size_t used = 0;
	if (msgpack_unpack_next(&message, (const char *)bytes, size, &used) != MSGPACK_UNPACK_SUCCESS ||
	    used != size)
		abort();
	msgpack_unpacked_destroy(&message);
	return 0;
}
