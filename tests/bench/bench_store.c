/*
 * The image store: opening a head from it, against copying the head's bytes, against packing it, and without
 * a store; by the daemon's own loader, as its worker threads call it. A head of 151936 x 2048 (with
 * BENCH_QUICK a fourth of the words), of BF16 and of 4-bit weights, in a temporary directory (TMPDIR, or
 * /tmp) that takes 2 GB.
 */
#include "bench.h"
#include "clock.h"
#include "fingerprint.h"
#include "loader.h"
#include "own.h"
#include "pages.h"
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { H = 2048, STRANGER = 4242, BUSY = 2 };

static struct {
	char dir[256];
	struct kernels kernels;
	struct hash_secret secret;
	struct known known;
	uint32_t nv;
	unsigned threads, tries;
	bool learning; /* what is hashed is known from then on */
	bool lasting;  /* and by the daemons to come */
} bench;

static void give_up(const char *what, const struct err *err)
{
	fprintf(stderr, "bench_store: %s: %s\n", what, err ? err->text : "cannot be done");
	exit(1);
}

static int drop(const char *name, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st, (void)kind, (void)ftw;
	return remove(name);
}

static void tidy(void)
{
	nftw(bench.dir, drop, 16, FTW_DEPTH | FTW_PHYS);
}

/* `head`, then one row of `size` bytes a word: finite weights as they may be. */
static void write_model(const char *name, const void *head, size_t head_size, size_t size, bool bf16)
{
	char path[300];
	unsigned char *row = malloc(size);
	uint64_t state = 1;

	snprintf(path, sizeof path, "%s/%s", bench.dir, name);
	FILE *f = fopen(path, "we");
	if (!f || !row || fwrite(head, 1, head_size, f) != head_size)
		give_up(path, NULL);
	for (uint32_t n = 0; n < bench.nv; n++) {
		for (size_t i = 0; i < size; i++) {
			state = state * UINT64_C(6364136223846793005) + 1;
			row[i] = (unsigned char)(state >> 40);
		}
		/* Exponents of small numbers: in BF16's upper bytes, in the half that begins a block of Q4_0.
		 */
		for (size_t i = 1; i < size; i += bf16 ? 2 : 18)
			row[i] = (row[i] & 0x81) | (bf16 ? 0x3c : 0x20);
		if (fwrite(row, 1, size, f) != size)
			give_up(path, NULL);
	}
	free(row);
	if (fclose(f))
		give_up(path, NULL);
	/* Known are only files that others may not write and that have been left alone. */
	chmod(path, 0644);
	const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
	utimensat(AT_FDCWD, path, old, 0);
}

static void write_bf16(void)
{
	char head[256] = {0};
	int n = snprintf(
		head + 8, sizeof head - 8,
		"{\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[%u,%u],\"data_offsets\":[0,%llu]}}",
		bench.nv, (unsigned)H, 2ull * bench.nv * H);
	head[0] = (char)n;
	write_model("bf16.safetensors", head, 8 + (size_t)n, 2 * H, true);
}

static void write_q4_0(void)
{
	unsigned char head[96] = {0}, *at = head;
	const char name[] = "output.weight";
	const uint64_t counts[2] = {1, 0}, size = sizeof name - 1, shape[2] = {H, bench.nv}, offset = 0;
	const uint32_t version = 3, rank = 2, q4_0 = 2;
#define PUT(from, count) (memcpy(at, (from), (count)), at += (count))
	PUT("GGUF", 4);
	PUT(&version, sizeof version);
	PUT(counts, sizeof counts);
	PUT(&size, sizeof size);
	PUT(name, size);
	PUT(&rank, sizeof rank);
	PUT(shape, sizeof shape);
	PUT(&q4_0, sizeof q4_0);
	PUT(&offset, sizeof offset);
#undef PUT
	write_model("q4_0.gguf", head, (size_t)(at - head + 31) / 32 * 32, H / 32 * 18, false);
}

/* One opening: what it took to find out what is meant, and to have it in memory. */
struct opened {
	double identify, fill;
	struct load *load;
};

/* `known`: the file need not be hashed. */
static struct opened open_head(const char *name, struct imagestore *store, bool known)
{
	struct load_request request = {.layout = LAYOUT_BLOCKED, .tensor = strdup("")};
	struct source source = {.files = calloc(1, sizeof *source.files), .count = 1};
	struct opened o = {.load = NULL};
	char path[300];
	struct err err;

	snprintf(path, sizeof path, "%s/%s", bench.dir, name);
	snprintf(request.label, sizeof request.label, "%s", name);
	source.files[0] = (struct container_file){open(path, O_RDONLY | O_CLOEXEC), strdup(name)};
	if (load_new(&o.load, &request, &source, store, &bench.secret, &bench.kernels, bench.threads))
		give_up(name, NULL);
	o.load->known = known || bench.learning ? &bench.known : NULL;
	o.load->reader = STRANGER;
	double begun = clock_now();
	if (load_identify(o.load, &err))
		give_up(name, &err);
	o.identify = clock_now() - begun;
	begun = clock_now();
	if (load_fill(o.load, &err))
		give_up(name, &err);
	o.fill = clock_now() - begun;
	if (known && o.load->hashed)
		give_up(name, &(struct err){.text = "it was hashed again"});
	return o;
}

static struct imagestore *open_store(const char *name)
{
	char path[300];
	struct imagestore *s;
	struct err err;
	const struct imagestore_options options = {.path = path,
						   .fingerprint =
							   fingerprint(&bench.kernels, decoders_variant(0)),
						   .max_bytes = UINT64_C(1) << 40};
	snprintf(path, sizeof path, "%s/%s", bench.dir, name);
	if (imagestore_open(&s, &options, &err))
		give_up(name, &err);
	return s;
}

static void keep(struct imagestore *s, const struct load *l)
{
	struct stored_head head = {.tiles = l->geometry.tiles, .columns = l->geometry.nv};
	struct err err;

	head.key = load_tile_io(&l->image, l->hash, 0).key;
	snprintf(head.label, sizeof head.label, "%s", l->request.label);
	if (imagestore_admit(s, &head, NULL, 0, &err))
		give_up("admit", &err);
	for (uint32_t t = 0; t < l->geometry.tiles; t++) {
		struct image_tile_io io = load_tile_io(&l->image, l->hash, t);
		if (imagestore_write(s, &io, NULL, &err))
			give_up("write", &err);
	}
}

/* What the file hashed to, beside the image. */
static void keep_name(struct imagestore *s, const struct load *l)
{
	struct stored_name name;
	struct err err;

	bench.lasting = known_to_keep(&bench.known, &l->name, &name);
	if (!bench.lasting)
		fprintf(stderr,
			"bench_store: %s is no disk: what files hashed to is not taken from the store\n",
			bench.dir);
	else if (imagestore_name_keep(s, &name, &err))
		give_up("name", &err);
}

/* As a daemon that begins. */
static void recall(struct imagestore *s)
{
	struct stored_name rows[IMAGESTORE_NAMES_MAX];
	size_t count;
	struct err err;

	if (!bench.lasting)
		return;
	if (imagestore_names(s, rows, &count, &err))
		give_up("names", &err);
	known_fini(&bench.known);
	known_init(&bench.known);
	known_restore(&bench.known, rows, count);
}

/* The image's bytes into memory that nobody has touched yet. */
static double copy_image(const struct image *image)
{
	size_t size = image->size;
	double begun = clock_now();
	void *to = pages_new(&size);
	if (!to)
		give_up("copy", NULL);
	memcpy(to, image->memory, image->size);
	double took = clock_now() - begun;
	pages_free(to, size);
	return took;
}

/* Of an open; like all times here the least of some: others use the processors, too. */
static double open_seconds(const char *name, struct imagestore *s, bool known)
{
	double least = 1e9;
	for (unsigned i = 0; i < bench.tries; i++) {
		struct opened o = open_head(name, s, known);
		least = o.identify + o.fill < least ? o.identify + o.fill : least;
		load_free(o.load);
	}
	return least;
}

static double busy_seconds(const char *name, struct imagestore *s)
{
	pid_t children[BUSY];

	for (int i = 0; i < BUSY; i++)
		if ((children[i] = fork()) == 0)
			for (volatile unsigned n = 0;; n++)
				;
	double least = open_seconds(name, s, false);
	for (int i = 0; i < BUSY; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	return least;
}

/* An open of what is resident and known, but for the way there: the file's names and header, and the sample.
 */
static double attach_ms(const struct image *image)
{
	struct load_request request = {.layout = LAYOUT_BLOCKED, .tensor = strdup("")};
	struct source source = {.files = calloc(1, sizeof *source.files), .count = 1};
	struct refusal why;
	struct load *l;
	char path[300];
	struct err err;

	snprintf(path, sizeof path, "%s/bf16.safetensors", bench.dir);
	double begun = clock_now();
	source.files[0] =
		(struct container_file){open(path, O_RDONLY | O_CLOEXEC), strdup("bf16.safetensors")};
	if (load_new(&l, &request, &source, NULL, &bench.secret, &bench.kernels, bench.threads))
		give_up("attach", NULL);
	l->known = &bench.known;
	l->reader = STRANGER;
	if (load_identify(l, &err))
		give_up("attach", &err);
	if (l->hashed || !load_agrees(l, image, &why))
		give_up("attach", &(struct err){.text = "it is not what is resident"});
	double took = clock_now() - begun;
	load_free(l);
	return took * 1e3;
}

enum { PLAIN, HASHED, COLD_BF16, COLD_HASHED, COLD_4BIT, BUSY_OVER, ON_OVER, ATTACH, ROWS };

static void turn(double ratios[ROWS][BENCH_ROUNDS], int i)
{
	struct imagestore *s = open_store("images"), *empty = open_store("empty"); /* as after a restart */
	recall(s);
	struct opened first = open_head("bf16.safetensors", s, false);
	double copied = 1e9, attached = 1e9;

	if (first.load->from_store != first.load->geometry.tiles)
		give_up("warm", &(struct err){.text = "it is not in the store"});
	for (unsigned k = 0; k < bench.tries; k++) {
		double copy = copy_image(&first.load->image), attach = attach_ms(&first.load->image);
		copied = copy < copied ? copy : copied;
		attached = attach < attached ? attach : attached;
	}
	load_free(first.load);
	double hashed = open_seconds("bf16.safetensors", s, false),
	       warm = open_seconds("bf16.safetensors", s, true),
	       cold = open_seconds("bf16.safetensors", empty, false);
	ratios[ATTACH][i] = attached;
	ratios[HASHED][i] = hashed / copied;
	ratios[PLAIN][i] = warm / copied;
	ratios[ON_OVER][i] = cold / open_seconds("bf16.safetensors", NULL, false);
	ratios[COLD_BF16][i] = cold / warm;
	ratios[COLD_HASHED][i] = cold / hashed;
	ratios[COLD_4BIT][i] = open_seconds("q4_0.gguf", empty, false) / open_seconds("q4_0.gguf", s, true);
	ratios[BUSY_OVER][i] = busy_seconds("bf16.safetensors", s) / hashed;
	imagestore_close(empty);
	imagestore_close(s);
}

static void prepare(void)
{
	const char *names[] = {"bf16.safetensors", "q4_0.gguf"};
	struct imagestore *s;

	write_bf16();
	write_q4_0();
	sync();
	sleep(3); /* so that they have been left alone */
	s = open_store("images");
	bench.learning = true;
	for (int i = 0; i < 2; i++) {
		struct opened o = open_head(names[i], NULL, false);
		keep(s, o.load);
		keep_name(s, o.load);
		load_free(o.load);
	}
	bench.learning = false;
	imagestore_close(s);
}

int main(void)
{
	double ratios[ROWS][BENCH_ROUNDS];
	const char *tmp = getenv("TMPDIR");

	bench_begin();
	snprintf(bench.dir, sizeof bench.dir, "%s/npud-bench.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(bench.dir))
		give_up(bench.dir, NULL);
	atexit(tidy);
	bench.nv = 151936;
	bench.tries = getenv("BENCH_QUICK") ? 2 : 4;
	bench.threads = pool_processors() < 4 ? pool_processors() : 4;
	kernels_pick(&bench.kernels, cpu_have(), NULL);
	hash_secret_public(&bench.secret);
	known_init(&bench.known);
	prepare();
	for (int i = 0; i < BENCH_ROUNDS; i++)
		turn(ratios, i);
	bench_figure("store.warm", LOWER, ratios[PLAIN], 3.5, 2.5,
		     "time of a warm open over memcpy of the image into fresh pages");
	bench_figure("store.warm.hashed", LOWER, ratios[HASHED], 6, 4,
		     "the same with the hash of a BF16 file that nobody knows any more");
	bench_figure("store.cold.4bit", HIGHER, ratios[COLD_4BIT], 3, 6,
		     "time of a cold open over a warm one, Q4_0");
	bench_figure("store.cold.bf16", HIGHER, ratios[COLD_BF16], 1.3, 1.5, "the same, BF16");
	bench_figure("store.cold.hashed", HIGHER, ratios[COLD_HASHED], 1.3, 1.5,
		     "the same, BF16 and the warm one with the hash of the file");
	bench_figure("store.busy", LOWER, ratios[BUSY_OVER], 2.5, 2,
		     "warm open with two processors otherwise busy over quiet");
	bench_figure("store.on", LOWER, ratios[ON_OVER], 1.05, 1.0, "cold open with the store over without");
	bench_figure("store.again", LOWER, ratios[ATTACH], 1, 0.5,
		     "ms of an open of a known file whose head is resident, the sample included");
	known_fini(&bench.known);
	bench_end();
	return 0;
}
