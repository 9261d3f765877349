/*
 * Properties of the bound check against the decoder: what it accepts, msgpack-c decodes, and takes exactly
 * all bytes; one byte less is refused; what msgpack-c packs again is accepted again. What is refused as
 * malformed is so under any limits.
 */
#include "extent.h"
#include "proto.h"
#include <msgpack.h>
#include <stdlib.h>

#define DEEPEST 31 /* what both can do: msgpack-c has a stack of 32 */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must_decode(const uint8_t *bytes, size_t size)
{
	msgpack_unpacked message;
	msgpack_sbuffer again;
	msgpack_packer packer;
	size_t used = 0;

	msgpack_unpacked_init(&message);
	if (msgpack_unpack_next(&message, (const char *)bytes, size, &used) != MSGPACK_UNPACK_SUCCESS ||
	    used != size)
		abort();
	msgpack_sbuffer_init(&again);
	msgpack_packer_init(&packer, &again, msgpack_sbuffer_write);
	msgpack_pack_object(&packer, message.data);
	if (proto_extent_check(again.data, again.size, UINT32_MAX, DEEPEST))
		abort();
	msgpack_sbuffer_destroy(&again);
	msgpack_unpacked_destroy(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	int bounded = proto_extent_check(bytes, size, PROTO_ITEMS_MAX, PROTO_DEPTH_MAX);
	int sound = proto_extent_check(bytes, size, UINT32_MAX, DEEPEST);

	if ((bounded == 0 && sound) || (sound == 0 && bounded == NPU_E_MALFORMED))
		abort();
	if (sound)
		return 0;
	must_decode(bytes, size);
	if (proto_extent_check(bytes, size - 1, UINT32_MAX, DEEPEST) == 0)
		abort();
	return 0;
}
