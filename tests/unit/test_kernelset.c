#include "kernel_files.h"
#include "kernelset.h"
#include "own.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define DESIGN(rows, kd, nd, layout)                                                                   \
	"{\"rows\": " rows ", \"kd\": " kd ", \"nd\": " nd ", \"layout\": \"" layout "\", \"image\": " \
	"\"xclbin\", \"file\": \"a.xclbin\", \"kernel\": \"MLIR_AIE\", \"instructions\": \"a.bin\"}"
#define SET(designs) "{\"format\": 1, \"designs\": [" designs "]}"

static int parse(struct kernelset *s, const char *text)
{
	struct device_why why = {""};
	int r = kernelset_parse(s, text, strlen(text), "/set", &why);

	cr_expect_eq(r == 0, !why.text[0], "%s: %s", text, why.text);
	return r;
}

Test(kernelset, a_manifest_gives_its_designs)
{
	cleanup(kernelset_close) struct kernelset s;

	cr_assert_eq(parse(&s, SET(DESIGN("16", "4096", "28672", "blocked") "," DESIGN("1", "64", "7",
										       "row-major"))),
		     0);
	cr_assert_eq(s.count, 2);
	cr_expect(s.designs[0].rows == 16 && s.designs[0].kd == 4096 && s.designs[0].nd == 28672 &&
		  s.designs[0].layout == 1);
	cr_expect_str_eq(s.designs[0].file, "/set/a.xclbin");
	cr_expect_str_eq(s.designs[0].instructions, "/set/a.bin");
	cr_expect_eq(s.designs[1].layout, 0);
}

Test(kernelset, a_manifest_that_makes_no_sense_is_refused_with_a_sentence)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"{\"format\": 2, \"designs\": []}",
		SET(""),
		"{\"format\": 1, \"designs\": 3}",
		SET("3"),
		SET("{}"),
		SET(DESIGN("0", "64", "128", "blocked")),
		SET(DESIGN("4097", "64", "128", "blocked")),
		SET(DESIGN("1", "63", "128", "blocked")),
		SET(DESIGN("1", "64", "127", "blocked")),
		SET(DESIGN("1", "64", "128", "diagonal")),
		SET(DESIGN("1", "1048576", "1048576", "blocked")),
		SET(DESIGN("-1", "64", "128", "blocked")),
		SET(DESIGN("1.5", "64", "128", "blocked")),
		SET(DESIGN("4096", "64", "1048576", "blocked")),
		SET("{\"rows\": 1, \"rows\": 2}"),
		"{\"format\": 1, \"designs\": [{\"rows\": 1, \"kd\": 64, \"nd\": 128, \"layout\": "
		"\"blocked\", "
		"\"image\": \"xclbin\", \"file\": \"../a\", \"kernel\": \"k\", \"instructions\": \"b\"}]}",
		"{\"format\": 1, \"designs\": [{\"rows\": 1, \"kd\": 64, \"nd\": 128, \"layout\": "
		"\"blocked\", "
		"\"image\": \"xclbin\", \"file\": \"a\", \"kernel\": \"k\"}]}",
		"{\"format\": 1, \"designs\": [{\"rows\": 1, \"kd\": 64, \"nd\": 128, \"layout\": "
		"\"blocked\", "
		"\"image\": \"elf\", \"file\": \"a\", \"kernel\": \"k\", \"instructions\": \"b\"}]}",
		"{\"format\": 1, \"designs\": [{\"rows\": 1, \"kd\": 64, \"nd\": 128, \"layout\": "
		"\"blocked\", "
		"\"image\": \"elf\", \"file\": \"a\", \"kernel\": \"\"}]}",
		"{\"format\": 1, \"designs\": [{\"rows\": 1, \"kd\": 64, \"nd\": 128, \"layout\": "
		"\"blocked\", "
		"\"image\": \"elf\", \"file\": \"a\", \"kernel\": \"k\", \"speed\": 3}]}",
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct kernelset s;
		cr_expect_eq(parse(&s, bad[i]), DEVICE_E_BAD_KERNEL, "%s", bad[i]);
		cr_expect_eq(s.count, 0);
	}
}

#define BOTH (1u << LAYOUT_BLOCKED | 1u << LAYOUT_ROW_MAJOR)

static struct kernelset set_of(struct design *designs, uint32_t count)
{
	return (struct kernelset){designs, count};
}

Test(kernelset, the_design_with_the_fewest_bytes_is_chosen)
{
	struct design d[] = {{.rows = 16, .kd = 4096, .nd = 28672, .layout = 1},
			     {.rows = 16, .kd = 4096, .nd = 8192, .layout = 1},
			     {.rows = 16, .kd = 2048, .nd = 8192, .layout = 1}};
	struct kernelset s = set_of(d, 3);

	cr_expect_eq(kernelset_choose(&s, 32000, 4096, BOTH, 16),
		     &d[1]); /* 4 tiles of 8192, not 2 of 28672 */
	cr_expect_eq(kernelset_choose(&s, 28672, 4000, BOTH, 16), &d[0]);
	cr_expect_eq(kernelset_choose(&s, 32000, 2048, BOTH, 16), &d[2]);
	cr_expect_null(kernelset_choose(&s, 32000, 4097, BOTH, 16), "no kernel is deep enough");
	cr_expect_null(kernelset_choose(&s, 512, 64, BOTH, 16), "a small head is the host's");
	struct geometry g = design_geometry(&d[1], 32000, 4000);
	cr_expect(g.tiles == 4 && g.kd == 4096 && g.nd == 8192 && g.h == 4000 && g.layout == LAYOUT_BLOCKED);
}

Test(kernelset, a_few_bytes_less_are_not_worth_many_launches)
{
	struct design d[] = {{.rows = 16, .kd = 512, .nd = 128, .layout = 1},
			     {.rows = 16, .kd = 512, .nd = 4096, .layout = 1},
			     {.rows = 16, .kd = 512, .nd = 65536, .layout = 1}};
	struct kernelset s = set_of(d, 3);

	cr_expect_eq(kernelset_choose(&s, 32000, 512, BOTH, 16), &d[1]); /* 8 tiles, not 250 that fit */
	cr_expect_eq(kernelset_choose(&s, 100, 512, BOTH, 16), &d[0], "nothing is padded for it");
}

Test(kernelset, rows_and_layout_decide_between_equals)
{
	struct design d[] = {{.rows = 4, .kd = 64, .nd = 128, .layout = 1},
			     {.rows = 128, .kd = 64, .nd = 128, .layout = 1},
			     {.rows = 16, .kd = 64, .nd = 128, .layout = 0}};
	struct kernelset s = set_of(d, 3);

	cr_expect_eq(kernelset_choose(&s, 512, 64, 1u << LAYOUT_BLOCKED, 1), &d[0]);
	cr_expect_eq(kernelset_choose(&s, 512, 64, 1u << LAYOUT_BLOCKED, 5), &d[1]);
	cr_expect_eq(kernelset_choose(&s, 512, 64, 1u << LAYOUT_BLOCKED, 200), &d[1]);
	cr_expect_eq(kernelset_choose(&s, 512, 64, 1u << LAYOUT_ROW_MAJOR, 1), &d[2]);
	cr_expect_eq(kernelset_choose(&s, 512, 64, BOTH, 5), &d[2]);
	cr_expect_null(kernelset_choose(&s, 512, 64, 0, 5));
}

Test(kernelset, a_directory_is_opened_or_refused_with_what_is_wrong)
{
	char dir[] = "/tmp/npud-kernelset.XXXXXX", command[64];
	struct design d[2] = {{.rows = 16, .kd = 64, .nd = 128, .layout = 1},
			      {.rows = 1, .kd = 128, .nd = 100}};
	struct kernelset s;
	struct device_why why = {""};

	cr_assert(mkdtemp(dir));
	cr_expect_eq(kernelset_open(&s, dir, &why), DEVICE_E_ABSENT);
	cr_assert(kernel_files_write(dir, d, 2));
	cr_assert_eq(kernelset_open(&s, dir, &why), 0, "%s", why.text);
	cr_expect(s.count == 2 && memcmp(s.designs, d, sizeof d) == 0);
	kernelset_close(&s);
	cr_assert_eq(truncate(d[1].file, 100), 0);
	cr_expect_eq(kernelset_open(&s, dir, &why), DEVICE_E_BAD_KERNEL);
	cr_expect(strstr(why.text, "1.xclbin") && s.count == 0, "%s", why.text);
	snprintf(command, sizeof command, "rm -r %s", dir);
	cr_expect_eq(system(command), 0);
}
