#include "weight_map.h"
#include "own.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(weight_map, gives_the_files_beside_it_once_and_in_order_and_no_way_out)
{
	static const char text[] =
		"{\"metadata\":{\"source\":\"a.safetensors\",\"odd \\\" key\":1},\r\n\"weight_map\" : {"
		"\"b\":\"m-2.safetensors\", \"a \\\" b\" : \"m-1.safetensors\",\"c\":\"m-2.safetensors\","
		"\"key.safetensors\":\"m-10.safetensors\",\"d\":\"../up.safetensors\",\"e\":\"/"
		"abs.safetensors\","
		"\"f\":\"id_rsa\",\"g\":3,\"h\":\".safetensors\",\"i\":\"x\\u002fy.safetensors\","
		"\"j\":\"m-1\",\"k\":\"m.safetensors\"},\"after\":\"z.safetensors\"}";
	static const char *const wanted[] = {"m-1.safetensors", "m-10.safetensors", "m-2.safetensors",
					     "m.safetensors"};
	cleanup(weight_map_fini) struct weight_map map = {.files = NULL};
	struct err err;

	cr_assert_eq(weight_map_scan(&map, text, sizeof text - 1, "index", &err), 0);
	cr_assert_eq(map.count, 4);
	for (size_t i = 0; i < map.count; i++) {
		cr_expect_str_eq(map.files[i], wanted[i]);
		cr_expect(weight_map_has(&map, wanted[i]));
	}
	cr_expect_not(weight_map_has(&map, "m-1"));
	cr_expect_not(weight_map_has(&map, "m-1.safetensors2"));
}

Test(weight_map, takes_what_is_cut_anywhere_and_what_is_no_index)
{
	static const char text[] = "{\"weight_map\":{\"a\":\"x.safetensors\",\"b\\\"\":\"y.safetensors\"}}";
	static const char *const others[] = {"[]", "\"", "\"\\", "{\"weight_map\":[\"q\"]}",
					     "{\"weight_map\":\"x.safetensors\"}"};
	struct err err;

	for (size_t size = 0; size < sizeof text; size++) {
		cleanup(freep) char *copy = malloc(size ? size : 1); /* so that reading past it is noticed */
		cleanup(weight_map_fini) struct weight_map map = {.files = NULL};
		memcpy(copy, text, size);
		cr_assert_eq(weight_map_scan(&map, copy, size, "index", &err), 0);
		cr_expect(map.count <= 2);
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		cleanup(weight_map_fini) struct weight_map map = {.files = NULL};
		cr_assert_eq(weight_map_scan(&map, others[i], strlen(others[i]), "index", &err), 0);
		cr_expect(map.count <= 1, "%s", others[i]);
	}
}

Test(weight_map, more_files_than_any_model_has_are_too_many)
{
	cleanup(weight_map_fini) struct weight_map map = {.files = NULL};
	cleanup(freep) char *text = malloc(WEIGHT_MAP_FILES_MAX * 32 + 64);
	char *at = text + sprintf(text, "{\"weight_map\":{");
	struct err err;

	for (unsigned i = 0; i <= WEIGHT_MAP_FILES_MAX; i++)
		at += sprintf(at, "\"%u\":\"%u.safetensors\",", i, i);
	cr_assert_eq(weight_map_scan(&map, text, (size_t)(at - text), "m.index.json", &err), NPU_E_TOO_LARGE);
	cr_expect(strstr(err.text, "m.index.json") && strstr(err.text, "4096"), "%s", err.text);
	cr_expect_eq(map.count, 0);
}
