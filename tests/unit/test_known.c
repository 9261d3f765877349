#include "known.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SECOND INT64_C(1000000000)

static char dir[64], path[2][96];
static int fds[2];
static struct container_file files[2];
static struct source source = {.files = files, .count = 1};
static uid_t stranger;
static const struct matrix_options plain = {.transpose = false};
static const struct content_hashes hashes = {.count = 1, .of = {{1, 2, 3}}};
static struct known known;
static struct hash_secret secret;

static void put(int i, const char *text)
{
	FILE *f = fopen(path[i], "w");
	fputs(text, f);
	fclose(f);
	cr_assert_eq(chmod(path[i], 0644), 0);
}

static void reopen(int i)
{
	if (fds[i] >= 0)
		close(fds[i]);
	fds[i] = open(path[i], O_RDONLY);
	files[i] = (struct container_file){fds[i], i ? "b" : "a"};
}

static void up(void)
{
	snprintf(dir, sizeof dir, "/tmp/npud-known.XXXXXX");
	cr_assert(mkdtemp(dir));
	fds[0] = fds[1] = -1;
	source.count = 1;
	stranger = geteuid() + 4242;
	for (int i = 0; i < 2; i++) {
		snprintf(path[i], sizeof path[i], "%s/%d", dir, i);
		put(i, "some weights");
		reopen(i);
	}
	hash_secret_public(&secret);
	known_init(&known);
}

static void down(void)
{
	known_fini(&known);
	for (int i = 0; i < 2; i++) {
		close(fds[i]);
		unlink(path[i]);
	}
	rmdir(dir);
}

TestSuite(known, .init = up, .fini = down, .timeout = 60);

/* When the file had its times, as the file says itself. */
static int64_t changed(void)
{
	struct stat st;
	cr_assert_eq(fstat(fds[0], &st), 0);
	return st.st_ctim.tv_sec * SECOND + st.st_ctim.tv_nsec;
}

static struct known_name name_of(const char *tensor, const struct matrix_options *o, uid_t reader,
				 int64_t now)
{
	struct known_name n;
	known_name_make(&n, &source, tensor, strlen(tensor) + 1, o, reader, now, &secret);
	return n;
}

static struct known_name name(void)
{
	return name_of("", &plain, stranger, changed() + 60 * SECOND);
}

static void learn(void)
{
	struct known_name n = name();
	known_learn(&known, &n, &n, &hashes);
}

/* Whether the files need not be read. */
static bool finds(struct known_name n)
{
	struct content_hashes found;
	bool is = known_find(&known, &n, &found);
	if (is)
		cr_expect_eq(memcmp(&found, &hashes, sizeof found), 0, "other hashes");
	return is;
}

Test(known, a_file_that_is_as_it_was_is_known_through_any_descriptor_and_any_other_is_not)
{
	cr_expect_not(finds(name()));
	learn();
	cr_expect(finds(name()));
	reopen(0);
	cr_expect(finds(name()));
	files[0].fd = fds[1]; /* as long, and another inode */
	cr_expect_not(finds(name()));
}

Test(known, who_can_write_the_file_has_it_read_while_anybody_has_it_open_to_write)
{
	int64_t later = changed() + 60 * SECOND;
	int writer = open(path[0], O_RDWR);

	cr_assert_geq(writer, 0);
	learn();
	cr_expect(finds(name_of("", &plain, stranger, later)));
	cr_expect_not(finds(name_of("", &plain, geteuid(), later)), "its owner");
	cr_expect_not(finds(name_of("", &plain, 0, later)), "root");
	close(writer);
	cr_expect_not(finds(name_of("", &plain, geteuid(), later)),
		      "somebody could write it when it was hashed");
	learn();
	struct known_name idle = name();
	bool told = idle.idle;
	if (!told)
		cr_skip_test("this file system does not tell who writes");
	cr_expect(finds(name_of("", &plain, geteuid(), later)), "nobody can have");
	writer = open(path[0], O_RDWR);
	cr_expect_not(finds(name_of("", &plain, geteuid(), later)), "somebody can now");
	close(writer);
}

Test(known, who_may_write_the_file_by_its_mode_has_it_read)
{
	int writer = open(path[0], O_RDWR);

	cr_assert_geq(writer, 0);
	for (int bit = 0; bit < 2; bit++) {
		cr_assert_eq(chmod(path[0], bit ? 0664 : 0646), 0);
		learn();
		cr_expect_not(finds(name()), "its group, or everybody");
	}
	cr_assert_eq(chmod(path[0], 0644), 0);
	learn();
	cr_expect(finds(name()));
	close(writer);
}

Test(known, each_of_a_files_times_its_size_and_its_names_tell_it_apart)
{
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	cr_assert_eq(utimensat(AT_FDCWD, path[0], times, 0), 0);
	learn();
	cr_expect(finds(name()));
	cr_assert_eq(chmod(path[0], 0444), 0); /* ctime alone */
	cr_expect_not(finds(name()), "ctime");
	learn();
	times[1].tv_nsec = 1;
	cr_assert_eq(utimensat(AT_FDCWD, path[0], times, 0), 0);
	cr_expect_not(finds(name()), "mtime");
	learn();
	cr_assert_eq(truncate(path[0], 5), 0);
	cr_expect_not(finds(name()), "size");
	learn();
	files[0].name = "another";
	cr_expect_not(finds(name()), "name");
	files[0].name = "a";
	source.count = 2;
	cr_expect_not(finds(name()), "one more file");
}

Test(known, each_part_of_the_reading_tells_names_apart)
{
	int64_t later = changed() + 60 * SECOND;
	const struct matrix_options others[] = {
		{.transpose = true}, {.q8 = Q8_B}, {.is_signed = true}, {.k = 70}};

	learn();
	cr_expect_not(finds(name_of("other", &plain, stranger, later)));
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		cr_expect_not(finds(name_of("", &others[i], stranger, later)), "reading %zu", i);
	cr_expect(finds(name()));
}

Test(known, a_file_written_a_moment_ago_or_while_it_was_read_is_not_learnt)
{
	struct known_name young = name_of("", &plain, stranger, changed() + SECOND);
	known_learn(&known, &young, &young, &hashes);
	cr_expect_not(finds(name()), "young");

	struct known_name before = name();
	cr_assert_eq(chmod(path[0], 0444), 0);
	struct known_name after = name();
	known_learn(&known, &before, &after, &hashes);
	cr_expect_not(finds(before), "changed meanwhile");
}

Test(known, what_turned_out_to_be_wrong_is_forgotten)
{
	struct known_name n = name();

	learn();
	known_forget(&known, &n);
	known_forget(&known, &n);
	cr_expect_not(finds(name()));
}

Test(known, no_more_than_so_many_are_kept_and_the_least_recently_used_goes)
{
	char tensor[16];
	int64_t later = changed() + 60 * SECOND;

	learn();
	for (int i = 0; i < 600; i++) {
		snprintf(tensor, sizeof tensor, "t%d", i);
		struct known_name n = name_of(tensor, &plain, stranger, later);
		known_learn(&known, &n, &n, &hashes);
		if (i < 200)
			cr_expect(finds(name()), "used all the time");
	}
	cr_expect_eq(known.count, 256);
	cr_expect_eq(link_count(&known.entries), 256);
	cr_expect_not(finds(name()));
	cr_expect(finds(name_of("t599", &plain, stranger, later)));
}

Test(known, names_of_another_installation_are_of_no_use)
{
	learn();
	cr_expect(finds(name()));
	secret.bytes[7] ^= 1;
	cr_expect_not(finds(name()));
}

Test(known, what_is_to_be_kept_is_told_once_and_again_when_it_has_changed)
{
	struct known_name n = name();
	struct stored_name kept;

	cr_expect_not(known_to_keep(&known, &n, &kept), "nothing is known");
	learn();
	if (!n.lasting)
		cr_skip_test("this file system does not outlive a restart");
	cr_assert(known_to_keep(&known, &n, &kept));
	cr_expect_eq(memcmp(kept.digest, n.digest, sizeof n.digest), 0);
	cr_expect_eq(memcmp(&kept.hashes, &hashes, sizeof hashes), 0);
	cr_expect_eq(kept.idle, n.idle);
	cr_expect_not(known_to_keep(&known, &n, &kept), "it is kept");
	learn();
	cr_expect_not(known_to_keep(&known, &n, &kept), "it is kept, and the same");
	struct known_name busy = n;
	busy.idle = false;
	known_learn(&known, &busy, &n, &hashes);
	cr_expect(known_to_keep(&known, &n, &kept) && !kept.idle);
	const struct content_hashes others = {.count = 1, .of = {{9}}};
	known_learn(&known, &busy, &busy, &others);
	cr_expect(known_to_keep(&known, &n, &kept));
	cr_expect_eq(memcmp(&kept.hashes, &others, sizeof others), 0);
}

Test(known, files_that_do_not_outlive_a_restart_are_not_kept)
{
	struct known_name n = name();
	struct stored_name kept;

	n.lasting = false;
	learn();
	cr_expect_not(known_to_keep(&known, &n, &kept));
}

Test(known, what_an_earlier_daemon_kept_is_believed_as_if_it_were_ours)
{
	struct known_name n = name();
	struct stored_name rows[2] = {{.idle = false, .hashes = hashes}, {.hashes = hashes}}, kept;

	memcpy(rows[0].digest, n.digest, sizeof n.digest);
	known_restore(&known, rows, 2);
	cr_expect_eq(known.count, 2);
	cr_expect(finds(n));
	cr_expect_not(known_to_keep(&known, &n, &kept), "it is kept already");
	n.foreign = false;
	n.idle = true;
	cr_expect_not(finds(n), "somebody could write it when it was hashed");
	known_forget(&known, &n);
	rows[0].idle = true;
	known_restore(&known, rows, 1);
	cr_expect(finds(n));
}
