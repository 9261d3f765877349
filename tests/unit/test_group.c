#include "matrix.h"
#include "own.h"
#include "shard.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define FILES_MAX 8

/* A model being put together: files in memory, opened as one. */
struct model {
	struct container_file files[FILES_MAX];
	size_t count;
	struct container *c;
	struct err err;
};

static void model_fini(struct model *m)
{
	container_free(m->c);
	for (size_t i = 0; i < m->count; i++)
		close(m->files[i].fd);
}

static void add(struct model *m, const char *name, const void *bytes, size_t size)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	cr_assert(fd >= 0 && m->count < FILES_MAX);
	cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
	m->files[m->count++] = (struct container_file){fd, name};
}

static void add_text(struct model *m, const char *name, const char *text)
{
	add(m, name, text, strlen(text));
}

/* One F32 matrix [2][4] a name, of the value `fill`. */
static void add_safetensors(struct model *m, const char *name, const char *first, const char *second,
			    float fill)
{
	char header[512], file[1024];
	float values[16];
	uint64_t size = (uint64_t)snprintf(
		header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}",
		first);

	if (second)
		size += (uint64_t)snprintf(
			header + size, sizeof header - size,
			",\"%s\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[32,64]}", second);
	header[size++] = '}';
	for (int i = 0; i < 16; i++)
		values[i] = fill;
	size_t data = second ? 64 : 32;
	memcpy(file, &size, 8);
	memcpy(file + 8, header, size);
	memcpy(file + 8 + size, values, data);
	add(m, name, file, 8 + size + data);
}

struct bytes {
	unsigned char at[1024];
	size_t size;
};

static void put(struct bytes *b, const void *from, size_t size)
{
	cr_assert(size <= sizeof b->at - b->size);
	memcpy(b->at + b->size, from, size);
	b->size += size;
}

static void put_u32(struct bytes *b, uint32_t v)
{
	put(b, &v, 4);
}

static void put_u64(struct bytes *b, uint64_t v)
{
	put(b, &v, 8);
}

static void put_string(struct bytes *b, const char *text)
{
	put_u64(b, strlen(text));
	put(b, text, strlen(text));
}

/* A GGUF part as llama-gguf-split writes it (uint16, uint16, int32); tensor NULL: none. */
static void add_gguf(struct model *m, const char *name, int no, int count, int all, const char *tensor)
{
	struct bytes b = {.size = 0};
	uint16_t no16 = (uint16_t)no, count16 = (uint16_t)count;
	int32_t all32 = all;
	float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};

	put(&b, "GGUF", 4);
	put_u32(&b, 3);
	put_u64(&b, tensor ? 1 : 0);
	put_u64(&b, count ? 3 : 0);
	if (count) {
		put_string(&b, "split.no");
		put_u32(&b, 2);
		put(&b, &no16, 2);
		put_string(&b, "split.count");
		put_u32(&b, 2);
		put(&b, &count16, 2);
		put_string(&b, "split.tensors.count");
		put_u32(&b, 5);
		put(&b, &all32, 4);
	}
	if (tensor) {
		put_string(&b, tensor);
		put_u32(&b, 2);
		put_u64(&b, 4);
		put_u64(&b, 2);
		put_u32(&b, 0);
		put_u64(&b, 0);
		while (b.size % 32)
			put(&b, "", 1);
		put(&b, values, sizeof values);
	}
	add(m, name, b.at, b.size);
}

static int open_model(struct model *m)
{
	return container_open(&m->c, m->files, m->count, "the model", &m->err);
}

static void refused(struct model *m, const char *a, const char *b)
{
	cr_assert_eq(open_model(m), NPU_E_BAD_CONTAINER);
	cr_expect(strstr(m->err.text, a) && strstr(m->err.text, b), "\"%s\" and \"%s\" are not both in: %s",
		  a, b, m->err.text);
}

static float first_value(const struct model *m, const struct tensor *t)
{
	struct matrix matrix;
	struct err err;
	float stored[4], value[4];

	cr_assert_eq(matrix_init(&matrix, m->c, t, NULL, false, &err), 0, "%s", err.text);
	cr_assert_eq(matrix_read(&matrix, 0, 1, stored, &err), 0, "%s", err.text);
	matrix_decode(&matrix, stored, 1, value);
	return value[0];
}

static const char *head(const struct model *m, enum head_reason *why, float *value)
{
	const struct tensor *t = NULL;
	struct err err;

	cr_assert_eq(container_head(m->c, NULL, &t, why, &err), 0, "%s", err.text);
	*value = first_value(m, t);
	return t->name;
}

static const char two[] = "{\"metadata\":{\"total_size\":96},\"weight_map\":{"
			  "\"model.embed_tokens.weight\":\"model-00001-of-00002.safetensors\","
			  "\"lm_head.weight\":\"model-00002-of-00002.safetensors\"}}";

static void add_two(struct model *m)
{
	add_safetensors(m, "model-00001-of-00002.safetensors", "model.embed_tokens.weight", NULL, 1);
	add_safetensors(m, "model-00002-of-00002.safetensors", "lm_head.weight", NULL, 2);
}

Test(group, names_of_shards_are_read)
{
	struct shard s;

	cr_assert(shard_read(&s, "Qwen-00002-of-00005.gguf"));
	cr_expect(s.number == 2 && s.count == 5 && s.stem == 4);
	cr_expect_str_eq(s.extension, ".gguf");
	cr_expect_not(shard_read(&s, "-00002-of-00001.gguf"));
	cr_expect_not(shard_read(&s, "a-00000-of-00001.gguf"));
	cr_expect_not(shard_read(&s, "a-0001-of-00001.gguf"));
	cr_expect_not(shard_read(&s, "a-00001-of-0000x.gguf"));
	cr_expect_not(shard_read(&s, "00001-of-00001"));
	cr_expect_not(shard_read(&s, ".gguf"));
	cr_expect_not(shard_read(&s, ""));
}

Test(group, the_head_is_found_in_whichever_shard_has_it)
{
	cleanup(model_fini) struct model m = {.count = 0};
	enum head_reason why;
	float value;

	add_two(&m);
	add_text(&m, "model.safetensors.index.json", two);
	cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
	cr_expect_eq(container_count(m.c), 2);
	cr_expect_str_eq(head(&m, &why, &value), "lm_head.weight");
	cr_expect(why == HEAD_UNTIED && value == 2);
}

Test(group, shards_need_no_index)
{
	cleanup(model_fini) struct model m = {.count = 0}, config = {.count = 0};

	add_text(&config, "config.json", "{}");
	add_two(&config);
	cr_expect_eq(open_model(&config), 0, "%s", config.err.text);
	add_two(&m);
	cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
	cr_expect_eq(container_tensor(m.c, 1)->file, 1);
}

/* gpt-oss counts from 0, DeepSeek in six digits, Kimi without leading zeros. */
Test(group, where_there_is_an_index_the_names_of_shards_do_not_matter)
{
	static const char *const names[][2] = {
		{"model-00000-of-00001.safetensors", "model-00001-of-00001.safetensors"},
		{"model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors"},
		{"model-1-of-2.safetensors", "model-2-of-2.safetensors"},
		{"embeddings.safetensors", "the rest.safetensors"},
	};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		cleanup(model_fini) struct model m = {.count = 0}, half = {.count = 0};
		char index[256];
		enum head_reason why;
		float value;
		snprintf(index, sizeof index,
			 "{\"weight_map\":{\"model.embed_tokens.weight\":\"%s\",\"lm_head.weight\":\"%s\"}}",
			 names[i][0], names[i][1]);
		add_safetensors(&m, names[i][0], "model.embed_tokens.weight", NULL, 1);
		add_safetensors(&m, names[i][1], "lm_head.weight", NULL, 2);
		add_text(&m, "model.safetensors.index.json", index);
		cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
		cr_expect_str_eq(head(&m, &why, &value), "lm_head.weight");
		cr_expect(why == HEAD_UNTIED && value == 2);
		add_safetensors(&half, names[i][0], "model.embed_tokens.weight", NULL, 1);
		add_text(&half, "model.safetensors.index.json", index);
		refused(&half, names[i][1], "was not given");
	}
}

Test(group, a_file_that_the_index_does_not_know_is_refused)
{
	cleanup(model_fini) struct model m = {.count = 0};

	add_two(&m);
	add_safetensors(&m, "model-00003-of-00003.safetensors", "other", NULL, 3);
	add_text(&m, "model.safetensors.index.json", two);
	refused(&m, "model-00003", "says of no tensor");
}

Test(group, a_shard_alone_is_half_a_model_and_refused)
{
	cleanup(model_fini) struct model one = {.count = 0}, other = {.count = 0};

	/* It has an embedding that would be taken for a tied head. */
	add_safetensors(&one, "model-00001-of-00002.safetensors", "model.embed_tokens.weight", NULL, 1);
	refused(&one, "file 1 of 2", "alone");
	add_safetensors(&other, "model-00001-of-00002.safetensors", "model.embed_tokens.weight", NULL, 1);
	add_text(&other, "config.json", "{}");
	refused(&other, "file 1 of 2", "alone");
}

Test(group, shards_of_two_models_or_twice_the_same_are_refused)
{
	cleanup(model_fini) struct model m = {.count = 0}, twice = {.count = 0}, missing = {.count = 0},
					 none = {.count = 0};

	add_safetensors(&m, "model-00001-of-00002.safetensors", "a", NULL, 1);
	add_safetensors(&m, "other-00002-of-00002.safetensors", "b", NULL, 1);
	refused(&m, "other-00002", "another model");
	add_safetensors(&twice, "model-00001-of-00002.safetensors", "a", NULL, 1);
	add_safetensors(&twice, "model-00001-of-00002.safetensors", "b", NULL, 1);
	refused(&twice, "shard 1", "twice");
	add_safetensors(&missing, "model-00001-of-00003.safetensors", "a", NULL, 1);
	add_safetensors(&missing, "model-00002-of-00003.safetensors", "b", NULL, 1);
	refused(&missing, "3", "2 were given");
	add_safetensors(&none, "a.safetensors", "a", NULL, 1);
	add_safetensors(&none, "b.safetensors", "b", NULL, 1);
	refused(&none, "a.safetensors", "its name is not one of");
}

Test(group, two_tensors_of_one_name_are_refused_across_files)
{
	cleanup(model_fini) struct model m = {.count = 0};

	add_safetensors(&m, "m-00001-of-00002.safetensors", "a", "x", 1);
	add_safetensors(&m, "m-00002-of-00002.safetensors", "x", NULL, 1);
	refused(&m, "\"x\"", "two tensors");
}

Test(group, hostile_indexes_are_refused_by_what_is_wrong)
{
	static const struct {
		const char *text, *a, *b;
	} bad[] = {
		{"", "index.json", "empty"},
		{"[]", "index.json", "not a JSON object"},
		{"{\"weight_map\":{\"a\":", "index.json", "byte"},
		{"{}", "weight_map", "missing"},
		{"{\"weight_map\":[]}", "weight_map", "not an object"},
		{"{\"weight_map\":{\"a\":1}}", "\"a\"", "not a string"},
		{"{\"weight_map\":{\"a\":\"../../etc/passwd\"}}", "../../etc/passwd",
		 "not the name of a file"},
		{"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "/etc/passwd", "not the name of a file"},
		{"{\"weight_map\":{\"a\":\"\"}}", "\"a\"", "not the name of a file"},
		{"{\"weight_map\":{\"a\":\"config.json\"}}", "config.json", "not given"},
		{"{\"weight_map\":{\"a\":\"model-00003-of-00003.safetensors\"}}", "model-00003", "missing?"},
		{"{\"weight_map\":{\"lm_head.weight\":\"model-00001-of-00002.safetensors\"}}",
		 "model-00002-of-00002.safetensors: tensor \"lm_head.weight\"",
		 "is in \"model-00001-of-00002.safetensors\""},
		{"{\"weight_map\":{\"gone\":\"model-00001-of-00002.safetensors\"}}", "\"gone\"",
		 "nor in another"},
		{"{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}", "index.json", "duplicate"},
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		cleanup(model_fini) struct model m = {.count = 0};
		add_two(&m);
		add_text(&m, "model.safetensors.index.json", bad[i].text);
		refused(&m, bad[i].a, bad[i].b);
	}
}

Test(group, an_index_that_nests_without_end_is_refused_before_it_is_parsed)
{
	cleanup(model_fini) struct model m = {.count = 0};
	char deep[100000];

	memset(deep, '[', sizeof deep);
	add_two(&m);
	add(&m, "model.safetensors.index.json", deep, sizeof deep);
	refused(&m, "index.json", "nests deeper");
}

Test(group, the_config_decides_whether_the_head_is_tied)
{
	static const struct {
		const char *config, *head;
	} cases[] = {
		{"{}", "lm_head.weight"},
		{"{\"tie_word_embeddings\":null}", "lm_head.weight"},
		{"{\"tie_word_embeddings\":false}", "lm_head.weight"},
		{"{\"tie_word_embeddings\":true}", "model.embed_tokens.weight"},
		{"{\"text_config\":{\"tie_word_embeddings\":true}}", "model.embed_tokens.weight"},
		{"{\"llm_config\":{\"tie_word_embeddings\":true}}", "model.embed_tokens.weight"},
		{"{\"tie_word_embeddings\":true,\"text_config\":{\"tie_word_embeddings\":true}}",
		 "model.embed_tokens.weight"},
		/* They do not agree: the tensor that is there is the head. */
		{"{\"tie_word_embeddings\":false,\"text_config\":{\"tie_word_embeddings\":true}}",
		 "lm_head.weight"},
		{"{\"tie_word_embeddings\":true,\"text_config\":{\"tie_word_embeddings\":false}}",
		 "lm_head.weight"},
		/* As Python writes it. */
		{"{\"a\":[0.0,Infinity,-Infinity,NaN],\"tie_word_embeddings\":true}",
		 "model.embed_tokens.weight"},
		{"{\"a\":1000000000000000019884624838656,\"tie_word_embeddings\":true}",
		 "model.embed_tokens.weight"},
		{"\r\n{\"\\\"NaN\":\"Infinity\\\"\",\"tie_word_embeddings\":false,\"tie_word_embeddings\":"
		 "true}\r\n",
		 "model.embed_tokens.weight"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cleanup(model_fini) struct model m = {.count = 0};
		enum head_reason why;
		float value;
		add_safetensors(&m, "model.safetensors", "lm_head.weight", "model.embed_tokens.weight", 1);
		add_text(&m, "config.json", cases[i].config);
		cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
		cr_expect_str_eq(head(&m, &why, &value), cases[i].head, "%s", cases[i].config);
		cr_expect_eq(why, strcmp(cases[i].head, "lm_head.weight") == 0 ? HEAD_UNTIED : HEAD_TIED);
	}
}

Test(group, an_embedding_is_no_head_where_the_config_says_so)
{
	cleanup(model_fini) struct model m = {.count = 0};
	const struct tensor *t;
	enum head_reason why;

	add_safetensors(&m, "model.safetensors", "model.embed_tokens.weight", NULL, 1);
	add_text(&m, "config.json", "{\"tie_word_embeddings\":false}");
	cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
	cr_expect_eq(container_head(m.c, NULL, &t, &why, &m.err), NPU_E_NO_HEAD);
	cr_expect(strstr(m.err.text, "tie_word_embeddings"), "%s", m.err.text);
	cr_expect_eq(container_head(m.c, "model.embed_tokens.weight", &t, &why, &m.err), 0);
}

Test(group, the_head_of_a_model_of_pictures_and_text_is_one_level_down)
{
	static const struct {
		const char *first, *second, *config, *head;
	} cases[] = {
		{"language_model.model.embed_tokens.weight", "language_model.lm_head.weight", "{}",
		 "language_model.lm_head.weight"},
		{"language_model.model.embed_tokens.weight", "vision_tower.weight", "{\"text_config\":{}}",
		 "language_model.model.embed_tokens.weight"},
		{"model.language_model.embed_tokens.weight", "lm_head.weight", "{}", "lm_head.weight"},
		{"model.language_model.embed_tokens.weight", "lm_head.weight",
		 "{\"text_config\":{\"tie_word_embeddings\":true}}",
		 "model.language_model.embed_tokens.weight"},
		{"thinker.model.embed_tokens.weight", "thinker.lm_head.weight", "{}",
		 "thinker.lm_head.weight"},
		{"model.token_embd.weight", "model.norm.weight", "{}", "model.token_embd.weight"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cleanup(model_fini) struct model m = {.count = 0};
		enum head_reason why;
		float value;
		add_safetensors(&m, "model.safetensors", cases[i].first, cases[i].second, 1);
		add_text(&m, "config.json", cases[i].config);
		cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
		cr_expect_str_eq(head(&m, &why, &value), cases[i].head, "%zu", i);
		cr_expect_eq(why, strstr(cases[i].head, "lm_head") ? HEAD_UNTIED : HEAD_TIED);
	}
}

Test(group, an_embedding_does_not_stand_in_for_a_head_in_a_form_that_is_not_read)
{
	static const char *const forms[] = {"lm_head.qweight", "lm_head.weight_packed",
					    "language_model.lm_head.qweight", "lm_head.weight.absmax"};
	const struct tensor *t;
	enum head_reason why;
	float value;

	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		cleanup(model_fini) struct model m = {.count = 0}, tied = {.count = 0};
		add_safetensors(&m, "model.safetensors", "model.embed_tokens.weight", forms[i], 1);
		add_text(&m, "config.json", "{}");
		cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
		cr_expect_eq(container_head(m.c, NULL, &t, &why, &m.err), NPU_E_NO_HEAD);
		cr_expect(strstr(m.err.text, forms[i]) && strstr(m.err.text, "not quantised"), "%s",
			  m.err.text);
		cr_expect_str_eq(m.err.detail.tensor, forms[i]);
		cr_expect_eq(container_head(m.c, "model.embed_tokens.weight", &t, &why, &m.err), 0);
		/* Who says that they are one matrix is heard. */
		add_safetensors(&tied, "model.safetensors", "model.embed_tokens.weight", forms[i], 1);
		add_text(&tied, "config.json", "{\"tie_word_embeddings\":true}");
		cr_assert_eq(open_model(&tied), 0, "%s", tied.err.text);
		cr_expect_str_eq(head(&tied, &why, &value), "model.embed_tokens.weight");
	}
	cleanup(model_fini) struct model bias = {.count = 0};
	add_safetensors(&bias, "model.safetensors", "model.embed_tokens.weight", "lm_head.bias", 1);
	cr_assert_eq(open_model(&bias), 0, "%s", bias.err.text);
	cr_expect_str_eq(head(&bias, &why, &value), "model.embed_tokens.weight");
}

/* They were made from the embedding, and are what its engine multiplies with. */
Test(group, a_head_of_fastflowlms_tiles_is_the_head_of_a_tied_model)
{
	static const struct {
		const char *dtype, *head;
	} cases[] = {{"I8", "lm_head.weight"}, {"U8", "model.embed_tokens.weight"}};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cleanup(model_fini) struct model m = {.count = 0};
		static char file[8 + 256 + 5120 + 32 * 8];
		const struct tensor *t;
		enum head_reason why;
		uint64_t used = (uint64_t)sprintf(
			file + 8,
			"{\"lm_head.weight\":{\"dtype\":\"%s\",\"shape\":[1,5120],\"data_offsets\":[0,5120]},"
			"\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[32,4],\"data_offsets\":"
			"[5120,5376]}}",
			cases[i].dtype);
		memcpy(file, &used, 8);
		add(&m, "model.q4nx", file, 8 + used + 5376);
		add_text(&m, "config.json", "{\"tie_word_embeddings\":true}");
		cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
		cr_assert_eq(container_head(m.c, NULL, &t, &why, &m.err), 0, "%s", m.err.text);
		cr_expect_str_eq(t->name, cases[i].head);
	}
}

Test(group, a_bias_beside_the_head_is_pointed_out)
{
	static const struct {
		const char *name, *bias;
		bool told;
	} cases[] = {
		{"lm_head.weight", "lm_head.bias", true},
		{"language_model.lm_head.weight", "language_model.lm_head.bias", true},
		{"lm_head.weight", "output.bias", false},
		{"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.bias", false},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cleanup(model_fini) struct model m = {.count = 0};
		struct matrix matrix;
		add_safetensors(&m, "model.safetensors", cases[i].name, cases[i].bias, 1);
		cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
		cr_assert_eq(matrix_init(&matrix, m.c, container_tensor(m.c, 0), NULL, false, &m.err), 0);
		cr_expect_eq(strstr(matrix.note, cases[i].bias) != NULL, cases[i].told, "%s", matrix.note);
		cr_expect_eq(matrix.note[0] != 0, cases[i].told, "%s", matrix.note);
	}
}

Test(group, side_files_that_do_not_belong_are_refused)
{
	cleanup(model_fini) struct model tie = {.count = 0}, other = {.count = 0}, twice = {.count = 0},
					 alone = {.count = 0}, gguf = {.count = 0}, vast = {.count = 0};

	add_gguf(&gguf, "m.gguf", 0, 0, 0, "output.weight");
	add_text(&gguf, "config.json", "{}");
	refused(&gguf, "config.json", "has everything in itself");
	add_safetensors(&vast, "model.safetensors", "a", NULL, 1);
	add_text(&vast, "config.json", "{}");
	cr_assert_eq(ftruncate(vast.files[1].fd, (64 << 20) + 1), 0);
	refused(&vast, "config.json", "67108865 bytes of JSON");

	add_safetensors(&tie, "model.safetensors", "a", NULL, 1);
	add_text(&tie, "config.json", "{\"tie_word_embeddings\":1}");
	refused(&tie, "config.json", "neither true nor false");
	add_safetensors(&other, "model.safetensors", "a", NULL, 1);
	add_text(&other, "tokenizer.json", "{}");
	refused(&other, "tokenizer.json", "side files");
	add_safetensors(&twice, "model.safetensors", "a", NULL, 1);
	add_text(&twice, "config.json", "{}");
	add_text(&twice, "config.json", "{}");
	refused(&twice, "config.json", "second");
	add_text(&alone, "config.json", "{}");
	add_text(&alone, "a.index.json", "{}");
	refused(&alone, "the model", "no file of weights");
}

Test(group, a_split_gguf_is_one_model)
{
	cleanup(model_fini) struct model m = {.count = 0};
	enum head_reason why;
	float value;

	add_gguf(&m, "m-00001-of-00003.gguf", 0, 3, 2,
		 NULL); /* llama-gguf-split can write one of keys only */
	add_gguf(&m, "m-00002-of-00003.gguf", 1, 3, 2, "token_embd.weight");
	add_gguf(&m, "m-00003-of-00003.gguf", 2, 3, 2, "output.weight");
	cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
	cr_expect_str_eq(head(&m, &why, &value), "output.weight");
	cr_expect(why == HEAD_UNTIED && value == 1);
	cr_expect_str_eq(container_format(m.c), "GGUF");
}

Test(group, split_keys_that_do_not_agree_are_refused)
{
	cleanup(model_fini) struct model alone = {.count = 0}, count = {.count = 0}, no = {.count = 0},
					 past = {.count = 0}, all = {.count = 0}, sum = {.count = 0},
					 none = {.count = 0}, negative = {.count = 0}, mixed = {.count = 0};

	add_gguf(&alone, "m-00001-of-00002.gguf", 0, 2, 2, "token_embd.weight");
	refused(&alone, "file 1 of 2", "alone");
	add_gguf(&count, "a.gguf", 0, 2, 2, "a");
	add_gguf(&count, "b.gguf", 1, 3, 2, "b");
	refused(&count, "b.gguf", "split.count is 3");
	add_gguf(&no, "a.gguf", 1, 2, 2, "a");
	add_gguf(&no, "b.gguf", 1, 2, 2, "b");
	refused(&no, "b.gguf", "split.no is 1");
	add_gguf(&past, "a.gguf", 2, 2, 2, "a");
	add_gguf(&past, "b.gguf", 1, 2, 2, "b");
	refused(&past, "a.gguf", "split.no is 2 of");
	add_gguf(&all, "a.gguf", 0, 2, 2, "a");
	add_gguf(&all, "b.gguf", 1, 2, 3, "b");
	refused(&all, "b.gguf", "split.tensors.count is 3");
	add_gguf(&sum, "a.gguf", 0, 2, 5, "a");
	add_gguf(&sum, "b.gguf", 1, 2, 5, "b");
	refused(&sum, "2 tensors", "split.tensors.count is 5");
	add_gguf(&none, "a.gguf", 0, 2, 2, "a");
	add_gguf(&none, "b.gguf", 0, 0, 0, "b");
	refused(&none, "b.gguf", "no split.count");
	add_gguf(&negative, "a.gguf", 0, 1, -1, "a");
	refused(&negative, "split.tensors.count", "negative");
	add_gguf(&mixed, "a.gguf", 0, 2, 2, "a");
	add_safetensors(&mixed, "b.safetensors", "b", NULL, 1);
	refused(&mixed, "b.safetensors", "is GGUF");
}

Test(group, a_shard_that_shrinks_is_named_when_it_is_read)
{
	cleanup(model_fini) struct model m = {.count = 0};
	struct matrix matrix;
	float stored[4];

	add_two(&m);
	cr_assert_eq(open_model(&m), 0, "%s", m.err.text);
	cr_assert_eq(matrix_init(&matrix, m.c, container_tensor(m.c, 1), NULL, false, &m.err), 0);
	cr_assert_eq(ftruncate(m.files[1].fd, 50), 0);
	cr_expect_eq(matrix_read(&matrix, 0, 1, stored, &m.err), NPU_E_FILE_CHANGED);
	cr_expect(strstr(m.err.text, "model-00002-of-00002.safetensors"), "%s", m.err.text);
	cr_expect_str_eq(m.err.detail.file, "model-00002-of-00002.safetensors");
}
