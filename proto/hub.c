#include "hub.h"
#include "own.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MANIFEST_MAX 65536
#define DIGEST_HEX 64u

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static bool is_there(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0;
}

/* False where the path is too long for one that exists. */
static bool join(char to[PATH_MAX], const char *base, const char *name)
{
	int n = snprintf(to, PATH_MAX, "%s/%s", base, name);
	return n > 0 && n < PATH_MAX;
}

/* The value of a variable and a folder below it; "" where the variable is not set. */
static bool below(char to[PATH_MAX], const char *variable, const char *folder)
{
	const char *base = getenv(variable);
	to[0] = 0;
	return base && *base == '/' && join(to, base, folder);
}

/* A name is never a way out of its place. */
static bool is_name(const char *name)
{
	if (!*name || *name == '/' || strlen(name) > 128)
		return false;
	for (const char *part = name; part; part = strchr(part, '/')) {
		part += *part == '/';
		size_t size = strcspn(part, "/");
		if (size == 0 || part[0] == '.')
			return false;
	}
	return true;
}

/* The whole of a small file as text; false where there is none or it is larger. */
static bool read_text(const char *path, char *to, size_t room)
{
	cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t have = 0;
	ssize_t n = -1;
	while (fd >= 0 && have < room && (n = read(fd, to + have, room - have)) > 0)
		have += (size_t)n;
	if (n != 0)
		return false;
	to[have] = 0;
	return true;
}

/* The only entry of a folder, "" where it has none or several. */
static void only_entry(const char *folder, char to[NAME_MAX + 1])
{
	cleanup(closedirp) DIR *d = opendir(folder);
	const struct dirent *e;
	unsigned count = 0;
	to[0] = 0;
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' && count++ == 0)
			snprintf(to, NAME_MAX + 1, "%s", e->d_name);
	if (count != 1)
		to[0] = 0;
}

/* "models--org--name": "org/name". */
static void repository_label(char to[129], const char *folder)
{
	char name[NAME_MAX + 1];
	snprintf(name, sizeof name, "%s", folder + strlen("models--"));
	char *cut = strstr(name, "--");
	if (cut) {
		*cut = '/';
		memmove(cut + 1, cut + 2, strlen(cut + 2) + 1);
	}
	err_printable(to, 129, name, strlen(name));
}

bool hub_snapshot(struct hub_found *out, const char *path)
{
	char snapshots[PATH_MAX], main_ref[PATH_MAX], revision[NAME_MAX + 1];
	size_t end = strlen(path);
	while (end > 1 && path[end - 1] == '/')
		end--;
	char folder[PATH_MAX];
	snprintf(folder, sizeof folder, "%.*s", (int)end, path);
	const char *slash = strrchr(folder, '/'), *base = slash ? slash + 1 : folder;

	if (strncmp(base, "models--", 8) != 0 || !join(snapshots, folder, "snapshots") ||
	    !join(main_ref, folder, "refs/main"))
		return false;
	if (read_text(main_ref, revision, NAME_MAX))
		revision[strcspn(revision, "\r\n")] = 0;
	else
		only_entry(snapshots, revision);
	if (!is_name(revision) || strchr(revision, '/') || !join(out->path, snapshots, revision) ||
	    !is_there(out->path))
		return false;
	repository_label(out->label, base);
	return true;
}

/* The repository of `name` in the cache, "org/model" or only "model", which must then be one. */
static int repository_find(char to[PATH_MAX], const char *cache, const char *name, struct err *err)
{
	cleanup(closedirp) DIR *d = opendir(cache);
	const char *slash = strchr(name, '/');
	char wanted[NAME_MAX + 1], found[NAME_MAX + 1] = "", shown[80], one[80], other[80];
	const struct dirent *e;

	if (slash)
		snprintf(wanted, sizeof wanted, "models--%.*s--%s", (int)(slash - name), name, slash + 1);
	while (d && (e = readdir(d))) {
		const char *cut = strncmp(e->d_name, "models--", 8) == 0 ? strstr(e->d_name + 8, "--") : NULL;
		const char *model = cut ? cut + 2 : e->d_name + 8;
		if (strncmp(e->d_name, "models--", 8) != 0 ||
		    strcmp(slash ? e->d_name : model, slash ? wanted : name) != 0)
			continue;
		if (found[0])
			return err_set(
				err, NPU_E_BAD_VALUE,
				"%s: several models have this name in %s: %s and %s; name the owner too, "
				"as in owner/model",
				err_printable(shown, sizeof shown, name, strlen(name)), cache,
				err_printable(one, sizeof one, found, strlen(found)),
				err_printable(other, sizeof other, e->d_name, strlen(e->d_name)));
		snprintf(found, sizeof found, "%s", e->d_name);
	}
	if (!found[0] || !join(to, cache, found))
		to[0] = 0;
	return 0;
}

/*
 * The weights' file of an Ollama manifest. Ollama's own program writes it, in one form, and a whole JSON
 * reader is more than this library carries: the layer of the model's media type is looked for, and what is
 * taken from it is 64 hexadecimal digits or nothing.
 */
static bool manifest_digest(const char *text, char digest[DIGEST_HEX + 1])
{
	static const char media[] = "\"application/vnd.ollama.image.model\"", key[] = "\"sha256:";
	const char *at = strstr(text, media);
	if (!at || strstr(at + 1, media)) /* several layers of weights: which, is not ours to say */
		return false;
	const char *from = at, *to = strchr(at, '}');
	while (from > text && *from != '{')
		from--;
	const char *value = strstr(from, key);
	if (!to || !value || value > to)
		return false;
	value += sizeof key - 1;
	if (strspn(value, "0123456789abcdef") != DIGEST_HEX)
		return false;
	memcpy(digest, value, DIGEST_HEX);
	digest[DIGEST_HEX] = 0;
	return true;
}

/* "model", "space/model", "host/space/model", each with ":tag" or latest. */
static bool manifest_find(struct hub_found *out, const char *store, const char *name)
{
	cleanup(freep) char *text = malloc(MANIFEST_MAX + 1);
	char digest[DIGEST_HEX + 1], manifest[PATH_MAX], blob[PATH_MAX];
	unsigned slashes = 0;
	const char *colon = strrchr(name, ':'), *tag = colon ? colon + 1 : "latest";
	int size = colon ? (int)(colon - name) : (int)strlen(name);

	for (const char *c = name; *c; c++)
		slashes += *c == '/';
	int n = snprintf(manifest, sizeof manifest, "%s/manifests/%s%.*s/%s", store,
			 slashes == 0	? "registry.ollama.ai/library/"
			 : slashes == 1 ? "registry.ollama.ai/"
					: "",
			 size, name, tag);
	if (!text || n < 0 || (size_t)n >= sizeof manifest || !read_text(manifest, text, MANIFEST_MAX) ||
	    !manifest_digest(text, digest))
		return false;
	n = snprintf(blob, sizeof blob, "blobs/sha256-%s", digest);
	if (n < 0 || !join(out->path, store, blob))
		return false;
	err_printable(out->label, sizeof out->label, name, strlen(name));
	return true;
}

static bool in_flm(struct hub_found *out, const char *models, const char *name)
{
	char as_packaged[PATH_MAX];
	snprintf(as_packaged, sizeof as_packaged, "%s-NPU2", name);
	if (!(join(out->path, models, name) && is_there(out->path)) &&
	    !(join(out->path, models, as_packaged) && is_there(out->path)))
		return false;
	err_printable(out->label, sizeof out->label, name, strlen(name));
	return true;
}

int hub_find(struct hub_found *out, const char *name, struct err *err)
{
	char hub[PATH_MAX], flm[PATH_MAX], repository[PATH_MAX], ollama[3][PATH_MAX], shown[132];
	const char *exact = getenv("HF_HUB_CACHE"), *models = getenv("OLLAMA_MODELS");

	err_printable(shown, sizeof shown, name, strlen(name));
	if (!is_name(name))
		return err_set(err, NPU_E_IO, "%s: no such file; check the path", shown);
	if (exact && *exact)
		snprintf(hub, sizeof hub, "%s", exact);
	else if (!below(hub, "HF_HOME", "hub") && !below(hub, "XDG_CACHE_HOME", "huggingface/hub"))
		below(hub, "HOME", ".cache/huggingface/hub");
	if (!below(flm, "XDG_CONFIG_HOME", "flm/models"))
		below(flm, "HOME", ".config/flm/models");
	snprintf(ollama[0], PATH_MAX, "%s", models ? models : "");
	below(ollama[1], "HOME", ".ollama/models");
	snprintf(ollama[2], PATH_MAX, "/usr/share/ollama/.ollama/models");

	int r = repository_find(repository, hub, name, err);
	if (r)
		return r;
	if ((repository[0] && hub_snapshot(out, repository)) || in_flm(out, flm, name))
		return 0;
	for (size_t i = 0; i < sizeof ollama / sizeof *ollama; i++)
		if (ollama[i][0] && manifest_find(out, ollama[i], name))
			return 0;
	return err_set(err, NPU_E_IO,
		       "%s: no such file, and no model of this name in %.90s, %.90s or %.90s; "
		       "check the path, or the name",
		       shown, hub, flm, ollama[0][0] ? ollama[0] : ollama[1]);
}
