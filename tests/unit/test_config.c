#include "config.h"
#include "own.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static char path[] = "/tmp/npud-config.XXXXXX";

static int read_text(struct config *c, const char *text, struct err *err)
{
	strcpy(path + sizeof path - 7, "XXXXXX");
	cleanup(closep) int fd = mkstemp(path);

	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	int r = config_read(c, path, err);
	unlink(path);
	return r;
}

/* Refused with the file, this line and this text in the sentence. */
static void refused(const char *text, int line, const char *said)
{
	struct config c;
	struct err err = {0};
	char where[64];

	config_defaults(&c);
	cr_expect_eq(read_text(&c, text, &err), NPU_E_BAD_CONFIG, "taken: %s", text);
	cr_expect_eq(err.code, NPU_E_BAD_CONFIG);
	snprintf(where, sizeof where, "%s:%d:", path, line);
	cr_expect(strstr(err.text, line ? where : path), "not at line %d: %s", line, err.text);
	cr_expect(strstr(err.text, said), "no \"%s\" in: %s", said, err.text);
}

Test(config, defaults_heed_the_environment)
{
	struct config c;

	unsetenv("NPUD_SOCKET");
	setenv("XDG_RUNTIME_DIR", "/tmp/rt", 1);
	setenv("XDG_CACHE_HOME", "/tmp/ca", 1);
	setenv("XDG_STATE_HOME", "/tmp/st", 1);
	config_defaults(&c);
	cr_expect_str_eq(c.socket, "/tmp/rt/npud/npud.sock");
	cr_expect_str_eq(c.cache_dir, "/tmp/ca/npud");
	cr_expect_str_eq(c.state_dir, "/tmp/st/npud");
	cr_expect_str_eq(c.device, "auto");
	cr_expect_str_eq(c.group, "");
	cr_expect(c.resident_bytes > 1 << 20 && c.connections && c.in_flight && c.in_flight_all && c.handles);

	setenv("NPUD_SOCKET", "/tmp/own.sock", 1);
	config_defaults(&c);
	cr_expect_str_eq(c.socket, "/tmp/own.sock");

	setenv("NPUD_SOCKET", "", 1);
	config_defaults(&c);
	cr_expect_str_eq(c.socket, "/tmp/rt/npud/npud.sock");
}

Test(config, defaults_without_or_with_relative_xdg_are_absolute)
{
	struct config c;

	unsetenv("NPUD_SOCKET");
	setenv("XDG_RUNTIME_DIR", "relative", 1);
	setenv("XDG_CACHE_HOME", "relative", 1);
	unsetenv("XDG_STATE_HOME");
	setenv("HOME", "/tmp/home", 1);
	config_defaults(&c);
	cr_expect_eq(c.socket[0], '/');
	cr_expect(strstr(c.socket, "npud.sock") && !strstr(c.socket, "relative"), "%s", c.socket);
	cr_expect_str_eq(c.cache_dir, "/tmp/home/.cache/npud");
	cr_expect_str_eq(c.state_dir, "/tmp/home/.local/state/npud");
	unsetenv("HOME");
	config_defaults(&c);
	char nowhere[64];
	snprintf(nowhere, sizeof nowhere, "/tmp/npud-%u/.cache/npud", (unsigned)getuid());
	cr_expect_str_eq(c.cache_dir, nowhere);
}

Test(config, a_file_with_all_keys_is_read)
{
	struct config c;
	struct err err;

	config_defaults(&c);
	cr_assert_eq(read_text(&c,
			       "# a comment\n"
			       "[daemon]\n"
			       "socket = /tmp/a b/npud.sock\n"
			       "cache_dir=/tmp/cache\n"
			       "state_dir = /tmp/state ; why\n"
			       "group = npu\n"
			       "[device]\n"
			       "kind = none\n"
			       "[resident]\n"
			       "max_bytes = 1048576\n"
			       "[limits]\n"
			       "connections = 2\n"
			       "in_flight = 3\n"
			       "in_flight_all = 4096\n"
			       "handles = 5",
			       &err),
		     0, "%s", err.text);
	cr_expect_str_eq(c.socket, "/tmp/a b/npud.sock");
	cr_expect_str_eq(c.cache_dir, "/tmp/cache");
	cr_expect_str_eq(c.state_dir, "/tmp/state");
	cr_expect_str_eq(c.group, "npu");
	cr_expect_str_eq(c.device, "none");
	cr_expect_eq(c.resident_bytes, 1048576);
	cr_expect_eq(c.connections, 2);
	cr_expect_eq(c.in_flight, 3);
	cr_expect_eq(c.in_flight_all, 4096);
	cr_expect_eq(c.handles, 5);
}

Test(config, what_a_file_does_not_say_stays)
{
	struct config c, before;
	struct err err;

	config_defaults(&c);
	before = c;
	cr_assert_eq(read_text(&c, "", &err), 0, "%s", err.text);
	cr_expect_eq(memcmp(&c, &before, sizeof c), 0);
	cr_assert_eq(read_text(&c, "[limits]\nhandles = 7\n", &err), 0, "%s", err.text);
	before.handles = 7;
	cr_expect_eq(memcmp(&c, &before, sizeof c), 0);
}

Test(config, an_unknown_key_is_told_with_line_and_nearest)
{
	refused("[daemon]\n\nsoket = /a/b\n", 3, "\"socket\" in [daemon]");
	refused("[limits]\nhandles = 3\nhandels = 3\n", 3, "\"handles\" in [limits]");
	refused("[daemon]\nmax_bytes = 1048576\n", 2, "\"max_bytes\" in [store]");
	refused("[daemon]\nse\033[31m = 1\n", 2, "\\x1b");
	/* the first refusal is the one that is told */
	refused("[limits]\nhandels = 3\nconections = 3\n", 2, "handels");
}

Test(config, a_bad_number_is_told_with_its_bounds)
{
	static const char *const bad[] = {"0",	"65537", "x", "-1", "3x", "", "99999999999999999999999",
					  "1.5"};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char text[128];
		snprintf(text, sizeof text, "[limits]\n\n\nhandles = %s\n", bad[i]);
		refused(text, 4, "from 1 to 65536");
	}
}

Test(config, a_line_that_is_no_ini_is_told)
{
	refused("[daemon]\ngroup = npu\nneither\n", 3, "neither");
	refused("[daemon\n", 1, "neither");
	refused("[daemon\ngroup = npu\n", 1, "neither");
	refused("[daemon]\nstate_dir = here\n", 0, "absolute");
}

Test(config, a_text_that_does_not_fit_is_refused)
{
	char text[128];

	snprintf(text, sizeof text, "[daemon]\ngroup = %064d\n", 0);
	refused(text, 2, "63 bytes");
}

Test(config, a_long_path_is_kept_whole_or_refused)
{
	char text[600], want[500] = "/";
	struct config c;
	struct err err;

	memset(want + 1, 'p', 400);
	snprintf(text, sizeof text, "[daemon]\ncache_dir = %s\n", want);
	config_defaults(&c);
	if (read_text(&c, text, &err) == 0)
		cr_expect_str_eq(c.cache_dir, want);
	else
		cr_expect_eq(err.code, NPU_E_BAD_CONFIG);
}

Test(config, a_relative_socket_and_an_unknown_device_are_refused)
{
	refused("[daemon]\nsocket = npud.sock\n", 0, "absolute");
	refused("[daemon]\nsocket =\n", 0, "absolute");
	refused("[device]\nkind = toaster\n", 0, "toaster");
}

Test(config, a_file_that_is_not_there_is_a_configuration_error)
{
	struct config c;
	struct err err = {0};

	config_defaults(&c);
	cr_expect_eq(config_read(&c, "/tmp/npud-no-such/file.conf", &err), NPU_E_BAD_CONFIG);
	cr_expect(strstr(err.text, "/tmp/npud-no-such/file.conf"), "%s", err.text);
}

Test(config, what_can_change_is_taken_over_and_the_rest_is_named)
{
	struct config running, fresh;
	char kept[128];

	config_defaults(&running);
	config_defaults(&fresh);
	config_adopt(&running, &fresh, kept, sizeof kept);
	cr_expect_str_eq(kept, "");
	fresh.handles = 3;
	fresh.resident_bytes = 1 << 20;
	strcpy(fresh.group, "users");
	strcpy(fresh.socket, "/else/where");
	fresh.threads = running.threads + 1;
	config_adopt(&running, &fresh, kept, sizeof kept);
	cr_expect_eq(running.handles, 3);
	cr_expect_eq(running.resident_bytes, 1 << 20);
	cr_expect_str_eq(running.group, "users");
	cr_expect_str_neq(running.socket, "/else/where");
	cr_expect_neq(running.threads, fresh.threads);
	cr_expect_str_eq(kept, "[daemon] socket, [head] threads");
	char cut[16];
	config_adopt(&running, &fresh, cut, sizeof cut);
	cr_expect_str_eq(cut, "[daemon] socket");
}

Test(config, tenants_have_names_and_both_commands)
{
	struct config c;
	struct err err = {0};

	config_defaults(&c);
	cr_assert_eq(read_text(&c,
			       "[tenant flm]\npause = systemctl stop flm\nresume = systemctl start flm\n"
			       "[tenant b]\nresume = r\ntimeout = 3\npause = p\n",
			       &err),
		     0, "%s", err.text);
	cr_assert_eq(c.tenant_count, 2);
	cr_expect_str_eq(c.tenants[0].name, "flm");
	cr_expect_str_eq(c.tenants[0].pause, "systemctl stop flm");
	cr_expect_str_eq(c.tenants[0].resume, "systemctl start flm");
	cr_expect_eq(c.tenants[0].timeout, 10);
	cr_expect_str_eq(c.tenants[1].name, "b");
	cr_expect_eq(c.tenants[1].timeout, 3);

	refused("threads = 1\n", 1,
		"no key \"threads\" before any [section]; the nearest is \"threads\" in [head]");
	refused("[tenant]\npause = p\n", 2, "needs a name");
	refused("[tenant a/b]\npause = p\n", 2, "needs a name");
	refused("[tenant a]\npause = p\n", 0, "[tenant a] needs both pause and resume");
	refused("[tenant a]\npuase = p\n", 2, "\"pause\" in [tenant]");
	refused("[tenant a]\ntimeout = 0\n", 2, "timeout");
	refused("[tenant a]\ngrace = 1\n", 2, "no key \"grace\"");
	refused("[ticket]\npause = p\n", 2, "no key \"pause\"");
	refused("[tenantry a]\npause = p\n", 2, "no key \"pause\"");
	refused("[tenant a]\npause=p\n[tenant b]\npause=p\n[tenant c]\npause=p\n[tenant d]\npause=p\n"
		"[tenant e]\npause=p\n[tenant f]\npause=p\n[tenant g]\npause=p\n[tenant h]\npause=p\n"
		"[tenant i]\npause=p\n",
		18, "more than 8");
}

Test(config, heads_to_preload_have_names_and_models)
{
	struct config c;
	struct err err = {0};

	config_defaults(&c);
	cr_assert_eq(read_text(&c, "[preload]\na = /m/a\nb = org/model\na = /m/c\n", &err), 0, "%s",
		     err.text);
	cr_assert_eq(c.preload_count, 2);
	cr_expect_str_eq(c.preloads[0].name, "a");
	cr_expect_str_eq(c.preloads[0].model, "/m/c", "the last one counts");
	cr_expect_str_eq(c.preloads[1].model, "org/model");

	refused("[preload]\na =\n", 2, "NAME = MODEL");
	refused("[preload]\na =   \n", 2, "NAME = MODEL");
	refused("[preload]\n"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa = /m\n",
		2, "at most 63 bytes");
	refused("[preload]\na=1\nb=1\nc=1\nd=1\ne=1\nf=1\ng=1\nh=1\ni=1\nj=1\nk=1\nl=1\nm=1\nn=1\n"
		"o=1\np=1\nq=1\n",
		18, "more than 16");
	refused("[preloads]\na = /m\n", 2, "no key \"a\"");
}

Test(config, tenants_change_at_a_restart_only)
{
	struct config running, fresh;
	struct err err = {0};
	char kept[128];

	config_defaults(&running);
	fresh = running;
	cr_assert_eq(read_text(&fresh, "[tenant a]\npause = p\nresume = r\n", &err), 0, "%s", err.text);
	config_adopt(&running, &fresh, kept, sizeof kept);
	cr_expect_str_eq(kept, "[tenant]");
	cr_expect_eq(running.tenant_count, 0);
}
