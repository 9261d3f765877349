/*
 * Property: whatever a model.safetensors.index.json or a config.json holds, two sound shards beside it are
 * one model or a refusal with a sentence. The first byte says which of the two the rest is. And whatever an
 * index holds, the files that a client opens for it are beside it, each once.
 */
#include "container.h"
#include "weight_map.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int file_of(const void *bytes, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || (size && write(fd, bytes, size) != (ssize_t)size))
		abort();
	return fd;
}

static int shard(const char *header)
{
	char file[256] = {0};
	uint64_t length = strlen(header);
	memcpy(file, &length, 8);
	memcpy(file + 8, header, length);
	return file_of(file, 8 + length + 8);
}

static void scan(const char *text, size_t size)
{
	struct weight_map map = {.files = NULL};
	struct err err;

	if (weight_map_scan(&map, text, size, "input", &err))
		return;
	for (size_t i = 0; i < map.count; i++)
		if (strchr(map.files[i], '/') || !weight_map_has(&map, map.files[i]) ||
		    (i && strcmp(map.files[i - 1], map.files[i]) >= 0))
			abort();
	weight_map_fini(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct err err = {0};
	struct container *c = NULL;
	const struct tensor *t = NULL;
	enum head_reason why;

	if (size == 0)
		return 0;
	scan((const char *)bytes + 1, size - 1);
	const struct container_file files[] = {
		{shard("{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":["
		       "0,8]}}"),
		 "m-00001-of-00002.safetensors"},
		{shard("{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}"),
		 "m-00002-of-00002.safetensors"},
		{file_of(bytes + 1, size - 1), bytes[0] & 1 ? "config.json" : "m.safetensors.index.json"},
	};
	int r = container_open(&c, files, 3, "input", &err);
	if (r && (err.code != r || !err.text[0]))
		abort();
	if (r == 0 &&
	    (container_count(c) != 2 || container_head(c, NULL, &t, &why, &err) || why == HEAD_NAMED))
		abort();
	container_free(c);
	for (int i = 0; i < 3; i++)
		close(files[i].fd);
	return 0;
}
