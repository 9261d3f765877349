/*
 * The time others take for our head, on one thread, over ours: oneDNN's int8 matmul, which reads a layout of
 * its own and writes int32, and ggml's Q8_0, which reads a sixteenth more. Both are loaded when this runs;
 * NPUD_BENCH_GGML names the directory of ggml's libraries.
 */
#include "scene.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if __has_include(<dnnl.h>)
#include <dnnl.h>
#endif

static struct scene ours;

/* A peer's run in turn with ours. */
static void compare(const char *name, bench_fn *run, void *arg, uint32_t rows, double must, double aim)
{
	double ratios[BENCH_ROUNDS];

	run(arg); /* what it makes at its first time */
	for (int i = 0; i < BENCH_ROUNDS; i++)
		ratios[i] = bench_seconds(NULL, run, arg) / scene_seconds(&ours, rows);
	bench_figure(name, HIGHER, ratios, must, aim, "its time over ours, one thread");
}

static const struct {
	uint32_t rows;
	double dnnl_must, dnnl_aim, ggml_must, ggml_aim;
} cases[] = {{1, 0.85, 1.0, 1.0, 1.2}, {16, 1.0, 1.15, 4, 6}, {128, 0.9, 1.0, 0, 0}};
enum { CASES = sizeof cases / sizeof *cases };

#define CALL(library, name) ((__typeof__(&name))(uintptr_t)dlsym(library, #name))

#if __has_include(<dnnl.h>)
struct dnnl {
	void *library;
	dnnl_primitive_t primitive;
	dnnl_stream_t stream;
	dnnl_exec_arg_t args[3];
};

static void dnnl_run(void *arg)
{
	struct dnnl *d = arg;
	CALL(d->library, dnnl_primitive_execute)(d->primitive, d->stream, 3, d->args);
	CALL(d->library, dnnl_stream_wait)(d->stream);
}

/* Fills what is at `arg` with bytes: the time depends on no value. */
static void dnnl_buffer(struct dnnl *d, int at, int what, const dnnl_memory_desc_t *shape,
			dnnl_engine_t engine)
{
	void *bytes;
	CALL(d->library, dnnl_memory_create)(&d->args[at].memory, shape, engine, DNNL_MEMORY_ALLOCATE);
	CALL(d->library, dnnl_memory_get_data_handle)(d->args[at].memory, &bytes);
	memset(bytes, 1, CALL(d->library, dnnl_memory_desc_get_size)(shape));
	d->args[at].arg = what;
}

static void dnnl_case(void *library, dnnl_engine_t engine, size_t c)
{
	struct dnnl d = {.library = library};
	dnnl_memory_desc_t x, w, y;
	dnnl_matmul_desc_t matmul;
	dnnl_primitive_desc_t described;
	dnnl_dims_t x_dims = {cases[c].rows, SCENE_H}, w_dims = {SCENE_H, SCENE_NV},
		    y_dims = {cases[c].rows, SCENE_NV};
	char name[64];

	CALL(library, dnnl_memory_desc_init_by_tag)(&x, 2, x_dims, dnnl_u8, dnnl_ab);
	CALL(library, dnnl_memory_desc_init_by_tag)(&w, 2, w_dims, dnnl_s8, dnnl_format_tag_any);
	CALL(library, dnnl_memory_desc_init_by_tag)(&y, 2, y_dims, dnnl_s32, dnnl_ab);
	CALL(library, dnnl_matmul_desc_init)(&matmul, &x, &w, NULL, &y);
	snprintf(name, sizeof name, "peer.onednn.rows%u", cases[c].rows);
	if (CALL(library, dnnl_primitive_desc_create)(&described, &matmul, NULL, engine, NULL) !=
	    dnnl_success) {
		bench_skipped(name, "oneDNN has no such matmul here");
		return;
	}
	dnnl_buffer(&d, 0, DNNL_ARG_SRC, &x, engine);
	dnnl_buffer(&d, 1, DNNL_ARG_WEIGHTS,
		    CALL(library, dnnl_primitive_desc_query_md)(described, dnnl_query_weights_md, 0), engine);
	dnnl_buffer(&d, 2, DNNL_ARG_DST, &y, engine);
	CALL(library, dnnl_primitive_create)(&d.primitive, described);
	CALL(library, dnnl_stream_create)(&d.stream, engine, dnnl_stream_default_flags);
	compare(name, dnnl_run, &d, cases[c].rows, cases[c].dnnl_must, cases[c].dnnl_aim);
	for (int i = 0; i < 3; i++)
		CALL(library, dnnl_memory_destroy)(d.args[i].memory);
	CALL(library, dnnl_primitive_destroy)(d.primitive);
	CALL(library, dnnl_primitive_desc_destroy)(described);
	CALL(library, dnnl_stream_destroy)(d.stream);
}

static void against_dnnl(void)
{
	void *library = dlopen("libdnnl.so.2", RTLD_NOW);
	dnnl_engine_t engine;

	if (!library || CALL(library, dnnl_engine_create)(&engine, dnnl_cpu, 0) != dnnl_success) {
		bench_skipped("peer.onednn", library ? "oneDNN makes no engine" : dlerror());
		return;
	}
	for (size_t c = 0; c < CASES; c++)
		dnnl_case(library, engine, c);
	CALL(library, dnnl_engine_destroy)(engine);
}
#else
static void against_dnnl(void)
{
	bench_skipped("peer.onednn", "built without dnnl.h: apt-get install libdnnl-dev, and build again");
}
#endif

/* What of ggml.h is used; the package has libraries only. */
struct ggml_context;
struct ggml_tensor;
struct ggml_cgraph;
struct ggml_init_params {
	size_t mem_size;
	void *mem_buffer;
	bool no_alloc;
};
enum { GGML_TYPE_F32 = 0, GGML_TYPE_Q8_0 = 8 };
struct ggml_context *ggml_init(struct ggml_init_params params);
void ggml_free(struct ggml_context *context);
struct ggml_tensor *ggml_new_tensor_2d(struct ggml_context *context, int type, int64_t width, int64_t rows);
struct ggml_tensor *ggml_mul_mat(struct ggml_context *context, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_cgraph *ggml_new_graph(struct ggml_context *context);
void ggml_build_forward_expand(struct ggml_cgraph *graph, struct ggml_tensor *result);
void *ggml_get_data(const struct ggml_tensor *tensor);
int ggml_graph_compute_with_ctx(struct ggml_context *context, struct ggml_cgraph *graph, int threads);
void ggml_cpu_init(void);

struct ggml {
	void *base, *cpu;
	struct ggml_context *context;
	struct ggml_cgraph *graph;
};

static void ggml_run(void *arg)
{
	struct ggml *g = arg;
	CALL(g->cpu, ggml_graph_compute_with_ctx)(g->context, g->graph, 1);
}

static void ggml_case(struct ggml *g, size_t c)
{
	struct ggml_init_params params = {
		.mem_size = (size_t)1 << 30}; /* weights, answers, and what a run takes each time */
	char name[64];

	snprintf(name, sizeof name, "peer.ggml.rows%u", cases[c].rows);
	g->context = CALL(g->base, ggml_init)(params);
	struct ggml_tensor *w =
		CALL(g->base, ggml_new_tensor_2d)(g->context, GGML_TYPE_Q8_0, SCENE_H, SCENE_NV);
	struct ggml_tensor *x =
		CALL(g->base, ggml_new_tensor_2d)(g->context, GGML_TYPE_F32, SCENE_H, cases[c].rows);
	g->graph = CALL(g->base, ggml_new_graph)(g->context);
	CALL(g->base, ggml_build_forward_expand)(g->graph, CALL(g->base, ggml_mul_mat)(g->context, w, x));
	memset(CALL(g->base, ggml_get_data)(w), 0x11, (size_t)SCENE_NV * SCENE_H / 32 * 34);
	float *to = CALL(g->base, ggml_get_data)(x);
	for (size_t i = 0; i < (size_t)SCENE_H * cases[c].rows; i++)
		to[i] = (float)(i % 13) - 6;
	compare(name, ggml_run, g, cases[c].rows, cases[c].ggml_must, cases[c].ggml_aim);
	CALL(g->base, ggml_free)(g->context);
}

static void against_ggml(void)
{
	const char *directory = getenv("NPUD_BENCH_GGML");
	/* Best first, as ggml would choose by itself. */
	const char *build = __builtin_cpu_supports("avx512bf16")   ? "zen4"
			    : __builtin_cpu_supports("avx512vnni") ? "icelake"
								   : "haswell";
	struct ggml g = {0};
	char path[4096];

	if (!directory) {
		bench_skipped("peer.ggml", "NPUD_BENCH_GGML names no directory with its libraries");
		return;
	}
	snprintf(path, sizeof path, "%s/libggml-base.so", directory);
	g.base = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	snprintf(path, sizeof path, "%s/libggml-cpu-%s.so", directory, build);
	g.cpu = g.base ? dlopen(path, RTLD_NOW) : NULL;
	if (!g.cpu) {
		bench_skipped("peer.ggml", dlerror());
		return;
	}
	CALL(g.cpu, ggml_cpu_init)();
	for (size_t c = 0; c < 2; c++)
		ggml_case(&g, c);
}

int main(void)
{
	bench_begin();
	scene_init(&ours);
	if (!kernels_pick(&ours.kernels, cpu_have(), NULL) || !pool_new(&ours.pool, 1))
		return 1;
	image_measure(&ours.kernels, ours.pool);
	/* One thread: theirs would spin beside ours, and ours beside theirs. */
	setenv("OMP_NUM_THREADS", "1", 1);
	against_dnnl();
	against_ggml();
	pool_free(ours.pool);
	scene_fini(&ours);
	bench_end();
	return 0;
}
