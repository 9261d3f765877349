#define _GNU_SOURCE 1
#include "spare.h"
#include "npu.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOKS = 600, LOOK_US = 50000, STOP_LOOKS = 2000, STOP_US = 10000 };

static bool refuse(char why[static SPARE_WHY], const char *what, const char *name)
{
	snprintf(why, SPARE_WHY, "%s: %.300s: %s", what, name, strerror(errno));
	return false;
}

/* Sections about what the daemon of everybody does: heads that it keeps ready, servers that it
 * pauses, its figures. */
static bool for_others(const char *line)
{
	line += strspn(line, " \t");
	return strncmp(line, "[preload", 8) == 0 || strncmp(line, "[tenant", 7) == 0 ||
	       strncmp(line, "[metrics", 8) == 0;
}

/* The configuration of this environment, then the changes: of a key given twice the last one counts. */
static bool write_config(const char *path, const char *changes, char why[static SPARE_WHY])
{
	const char *source = getenv("NPUD_CONFIG");
	char line[8192]; /* longer than npud takes, which then says so */
	bool skip = false;
	FILE *to = fopen(path, "wxe"), *from = NULL;

	if (!to)
		return refuse(why, "no configuration can be written", path);
	if (source && *source && !(from = fopen(source, "re"))) {
		refuse(why, "the configuration of NPUD_CONFIG cannot be read", source);
		fclose(to);
		return false;
	}
	while (from && fgets(line, sizeof line, from)) {
		if (line[strspn(line, " \t")] == '[')
			skip = for_others(line);
		if (!skip)
			fputs(line, to);
	}
	bool good = !from || !ferror(from);
	if (from)
		fclose(from);
	fprintf(to, "\n%s", changes);
	return (fclose(to) == 0 && good) || refuse(why, "no configuration can be written", path);
}

bool spare_init(struct spare *s, const char *changes, char why[static SPARE_WHY])
{
	const char *base = getenv("TMPDIR");
	char config[96];

	*s = (struct spare){0};
	if (!base || *base != '/' || strlen(base) > sizeof s->directory - sizeof "/npu-bench.XXXXXX")
		base = "/tmp"; /* too long for the name of a socket, too */
	snprintf(s->directory, sizeof s->directory, "%s/npu-bench.XXXXXX", base);
	if (!mkdtemp(s->directory)) {
		refuse(why, "no place for a daemon", s->directory);
		s->directory[0] = '\0';
		return false;
	}
	snprintf(s->socket, sizeof s->socket, "%s/run/npud.sock", s->directory);
	snprintf(config, sizeof config, "%s/npud.conf", s->directory);
	return write_config(config, changes, why);
}

/* The npud beside this program, or of PATH. Between fork and exec: nothing that allocates. */
static _Noreturn void become_npud(char *const argv[], const char *beside, int log, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	dup2(log, 1);
	dup2(log, 2);
	execv(beside, argv);
	execvp("npud", argv);
	static const char none[] = "there is no npud beside npu-bench or in PATH\n";
	if (write(2, none, sizeof none - 1) < 0)
		_exit(1);
	_exit(127);
}

/* The last line of what it said. */
static void last_words(const char *log, char *to, size_t room)
{
	char line[400];
	FILE *f = fopen(log, "re");

	snprintf(to, room, "it said nothing");
	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0])
			snprintf(to, room, "%s", line);
	}
	if (f)
		fclose(f);
}

/* Whether it answers, and has tried its device. */
static bool ready(const char *socket)
{
	npu_client *c;
	struct npu_status status;

	int r = npu_connect(&c, socket, "npu-bench");
	if (r == 0)
		r = npu_status(c, &status);
	npu_close(c);
	return r == 0 && strcmp(status.health, "degraded") != 0;
}

bool spare_start(struct spare *s, char why[static SPARE_WHY])
{
	char config[96], cache[96], state[96], log[96], beside[PATH_MAX + 8], said[400];
	char *const argv[] = {(char *)"npud", (char *)"--config",     config, (char *)"--socket",
			      s->socket,      (char *)"--cache-dir",  cache,  (char *)"--state-dir",
			      state,	      (char *)"--foreground", NULL};
	ssize_t length = readlink("/proc/self/exe", beside, PATH_MAX);
	pid_t parent = getpid();

	snprintf(config, sizeof config, "%s/npud.conf", s->directory);
	snprintf(cache, sizeof cache, "%s/cache", s->directory);
	snprintf(state, sizeof state, "%s/state", s->directory);
	snprintf(log, sizeof log, "%s/log", s->directory);
	while (length > 0 && beside[length - 1] != '/')
		length--;
	memcpy(beside + (length > 0 ? length : 0), "npud", sizeof "npud");
	int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return refuse(why, "no place for a daemon", log);
	pid_t pid = fork();
	if (pid == 0)
		become_npud(argv, beside, fd, parent);
	close(fd);
	if (pid < 0)
		return refuse(why, "no daemon can be started", "fork");
	s->pid = pid;
	for (int i = 0; i < LOOKS; i++) {
		if (ready(s->socket))
			return true;
		if (waitpid(pid, NULL, WNOHANG) == pid) {
			s->pid = 0;
			last_words(log, said, sizeof said);
			snprintf(why, SPARE_WHY, "the daemon that was started for it ended: %s", said);
			return false;
		}
		usleep(LOOK_US);
	}
	last_words(log, said, sizeof said);
	snprintf(why, SPARE_WHY, "the daemon that was started for it does not get ready; it said last: %s",
		 said);
	return false;
}

void spare_stop(struct spare *s)
{
	if (s->pid <= 0)
		return;
	kill(s->pid, SIGTERM);
	for (int i = 0; i < STOP_LOOKS; i++) {
		if (waitpid(s->pid, NULL, WNOHANG) != 0) {
			s->pid = 0;
			return;
		}
		usleep(STOP_US);
	}
	kill(s->pid, SIGKILL);
	while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
	s->pid = 0;
}

static int take_away(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path);
}

void spare_fini(struct spare *s)
{
	spare_stop(s);
	if (s->directory[0])
		nftw(s->directory, take_away, 16, FTW_DEPTH | FTW_PHYS);
	s->directory[0] = '\0';
}
