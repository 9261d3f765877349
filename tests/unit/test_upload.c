#include "upload.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct server *server;

static void up(void)
{
	server = calloc(1, sizeof *server);
	server->config.user_upload = 1000;
	residency_init(&server->residency, 0);
}

static void down(void)
{
	cr_expect_eq(quota_used(&server->quota, 1000, QUOTA_UPLOAD), 0, "charged for nothing");
	cr_expect_eq(server->upload_missing, 0);
	quota_fini(&server->quota);
	free(server);
}

TestSuite(upload, .init = up, .fini = down);

static struct upload *begin(uint64_t size, int *fd)
{
	struct upload *u;
	struct err err;
	cr_assert_eq(upload_new(&u, fd, server, 1000, "m", size, &err), 0, "%s", err.text);
	return u;
}

Test(upload, bytes_are_charged_until_the_last_who_has_them_lets_go)
{
	struct err err;
	int fd, other;
	struct upload *u = begin(1000, &fd), *more;

	cr_expect_eq(upload_new(&more, &other, server, 1000, "m", 1, &err), NPU_E_BUSY);
	cr_expect_eq(upload_new(&more, &other, server, 1001, "m", 1001, &err), NPU_E_TOO_LARGE);
	upload_hold(u);	   /* a load */
	upload_release(u); /* the session's file is closed */
	cr_expect_eq(upload_new(&more, &other, server, 1000, "m", 1, &err), NPU_E_BUSY,
		     "while a load reads them they are there");
	upload_release(u);
	cr_expect_eq(upload_new(&more, &other, server, 1000, "m", 1, &err), 0);
	close(other);
	upload_release(more);
	close(fd);
}

Test(upload, one_that_the_machine_has_no_room_for_is_refused_with_the_arithmetic)
{
	struct upload *u;
	struct err err;
	int fd = -1;

	server->config.user_upload = UINT64_C(1) << 50;
	cr_expect_eq(upload_new(&u, &fd, server, 1000, "m", UINT64_C(1) << 49, &err), NPU_E_NO_MEMORY);
	cr_expect(strstr(err.text, "562949953421312 bytes"), "%s", err.text);
	cr_expect(err.detail.limit < err.detail.needed && err.detail.needed == UINT64_C(1) << 49);
	cr_expect_eq(fd, -1);
}

Test(upload, what_others_have_yet_to_send_is_not_promised_twice)
{
	struct err err;
	int fd, other;
	struct upload *u = begin(1000, &fd), *more;

	server->upload_missing += UINT64_C(1) << 60; /* of other users */
	cr_expect_eq(upload_new(&more, &other, server, 1001, "m", 1, &err), NPU_E_NO_MEMORY);
	server->upload_missing -= UINT64_C(1) << 60;
	cr_expect_eq(server->upload_missing, 1000);
	cr_expect_eq(upload_put(u, fd, "m", 0, "0123456789", 10, &err), 0);
	cr_expect_eq(server->upload_missing, 990, "what has come is memory that is used");
	close(fd);
	upload_release(u);
}

Test(upload, a_file_that_is_complete_never_changes)
{
	struct err err;
	struct stat st;
	char got[11] = "";
	int fd;
	struct upload *u = begin(10, &fd);

	cr_expect_eq(upload_put(u, fd, "m", 0, "01234", 5, &err), 0);
	cr_expect_eq(upload_end(u, fd, "m", &err), NPU_E_BAD_COUNT);
	cr_expect_not(upload_ended(u));
	cr_expect_eq(upload_put(u, fd, "m", 5, "56789", 5, &err), 0);
	cr_expect_eq(upload_end(u, fd, "m", &err), 0);
	cr_expect(upload_ended(u));
	cr_expect_eq(pread(fd, got, 10, 0), 10);
	cr_expect_str_eq(got, "0123456789");
	cr_expect_eq(upload_put(u, fd, "m", 0, "x", 1, &err), NPU_E_BAD_VALUE);
	cr_expect_eq(pwrite(fd, "x", 1, 0), -1, "whoever has a descriptor of it");
	cr_expect_eq(ftruncate(fd, 5), -1);
	cr_expect_eq(fstat(fd, &st), 0);
	cr_expect_eq(st.st_size, 10);
	close(fd);
	upload_release(u);
}
