/*
 * XRT behind the table of device.h, for every XRT from 2.13 on. What a version has is asked of its headers:
 * hardware contexts from 2.15, buffers without a kernel from 2.16, full ELF from 2.19. Every function turns
 * exceptions into a code and a sentence. Objects of XRT count their references: a run keeps its kernel and
 * context, so that closing a context leaves its runs valid.
 */
#include "xrt_module.h"
#include <xrt/detail/abi.h> /* XRT_VERSION_CODE, in every release */
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#if __has_include(<xrt/xrt_hw_context.h>)
#include <xrt/xrt_hw_context.h>
#define HAVE_HW_CONTEXT 1
#else
#define HAVE_HW_CONTEXT 0
#endif
#if __has_include(<xrt/experimental/xrt_xclbin.h>)
#include <xrt/experimental/xrt_xclbin.h>
#include <xrt/experimental/xrt_ini.h>
#else
#include <experimental/xrt_xclbin.h>
#include <experimental/xrt_ini.h>
#endif
#if __has_include(<xrt/experimental/xrt_ext.h>)
#include <xrt/experimental/xrt_elf.h>
#include <xrt/experimental/xrt_ext.h>
#define HAVE_EXT 1
#elif __has_include(<experimental/xrt_ext.h>)
#include <experimental/xrt_elf.h>
#include <experimental/xrt_ext.h>
#define HAVE_EXT 1
#else
#define HAVE_EXT 0
#endif
#if HAVE_EXT && HAVE_HW_CONTEXT && XRT_VERSION_CODE >= XRT_VERSION(2, 19)
#define HAVE_ELF 1
#else
#define HAVE_ELF 0
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <sys/ioctl.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace
{
/* Where the arguments of a launch begin: opcode, instructions and their number, A, B, C; an ELF has the last. */
constexpr int first_buffer = 3;
constexpr int buffers = 3;
constexpr uint64_t opcode_run = 3;

/* An image that XRT has; the contexts and runs that use it share it. */
struct loaded_image {
	std::string file;
	xrt::uuid uuid;
};

struct context_state {
	std::shared_ptr<loaded_image> image;
#if HAVE_HW_CONTEXT
	xrt::hw_context hardware;
#endif
	xrt::kernel kernel;
	xrt::bo instructions;
	uint32_t words = 0;
	bool elf = false;
};
} // namespace

struct device {
	xrt::device handle;
	std::string node;
	std::mutex lock; /* for what follows */
	int groups[buffers] = {}; /* memories that the kernel opened last uses; before, the first: the host's */
	std::vector<std::shared_ptr<loaded_image>> images;
	std::vector<std::string> opened; /* images that were good once */
};

struct device_context {
	std::shared_ptr<context_state> state;
};

struct device_buffer {
	xrt::bo bo;
};

struct device_run {
	std::shared_ptr<context_state> keep;
	xrt::run run;
};

namespace
{
void say(device_why *why, const char *text)
{
	if (why)
		std::snprintf(why->text, sizeof why->text, "XRT: %s", text);
}

int code_of(int number)
{
	switch (number < 0 ? -number : number) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return DEVICE_E_ABSENT;
	case EACCES:
	case EPERM:
		return DEVICE_E_DENIED;
	case ENOMEM:
	case EAGAIN: /* mmap says so when memory may not be locked */
		return DEVICE_E_NO_MEMORY;
	case EINVAL:
	case ERANGE:
		return DEVICE_E_BAD_CALL;
	default:
		return DEVICE_E_FAULT;
	}
}

/* Runs `f`; its exceptions become a code and a sentence. `number` takes the errno of a failure, if it has one. */
template <class F> int guard(device_why *why, F &&f, int *number = nullptr) noexcept
{
	try {
		f();
		return DEVICE_OK;
	} catch (const std::bad_alloc &) {
		say(why, "out of memory");
		return DEVICE_E_NO_MEMORY;
	} catch (const std::system_error &e) {
		say(why, e.what());
		if (number)
			*number = std::abs(e.code().value());
		return code_of(e.code().value());
	} catch (const std::exception &e) {
		say(why, e.what());
		return DEVICE_E_FAULT;
	} catch (...) {
		say(why, "an exception of no known kind");
		return DEVICE_E_FAULT;
	}
}

/*
 * How many contexts the machine's programs hold, and how many there are: amdxdna's GET_INFO, whose numbers are part of
 * the kernel's interface. Debian 12's kernel headers are older than it, hence its structures here.
 */
bool contexts(const std::string &node, uint32_t *used, uint32_t *most)
{
	struct {
		uint64_t clock_max, tops_max, task_max, tops_now, task_now;
	} resources = {};
	struct {
		uint32_t what, size;
		uint64_t to;
	} ask = {12 /* QUERY_RESOURCE_INFO */, sizeof resources, reinterpret_cast<uintptr_t>(&resources)};
	int fd = ::open(node.c_str(), O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return false;
	bool good = ::ioctl(fd, _IOWR('d', 0x47, ask), &ask) == 0 && resources.task_max > 0;
	::close(fd);
	if (good) {
		*used = static_cast<uint32_t>(resources.task_now);
		*most = static_cast<uint32_t>(resources.task_max);
	}
	return good;
}

int xrt_open(device **out, const char *settings, device_why *why)
{
	return guard(why, [&] {
		try { /* a banner and warnings on stderr are no way for a library to speak */
			xrt::ini::set("Runtime.runtime_log", "null");
		} catch (...) {
		}
		std::string name(settings);
		bool index = name.find_first_not_of("0123456789") == std::string::npos && name.size() < 4;
		auto d = std::make_unique<device>();
		unsigned n = index && !name.empty() ? static_cast<unsigned>(std::stoul(name)) : 0;
		d->handle = index ? xrt::device(n) : xrt::device(name);
		d->node = "/dev/accel/accel" + std::to_string(n);
		*out = d.release();
	});
}

void xrt_close(device *d)
{
	guard(nullptr, [&] { delete d; });
}

void xrt_limits(device *d, device_limits *out)
{
	*out = {};
	guard(nullptr, [&] {
		contexts(d->node, &out->contexts_used, &out->contexts_max);
		std::snprintf(out->version, sizeof out->version, "XRT %u.%u",
			      static_cast<unsigned>(XRT_VERSION_CODE) >> 16,
			      static_cast<unsigned>(XRT_VERSION_CODE) & 0xffff);
	});
}

std::vector<char> read_file(const char *path)
{
	std::ifstream f(path, std::ios::binary);

	if (!f)
		throw std::system_error(ENOENT, std::generic_category(), path);
	return std::vector<char>(std::istreambuf_iterator<char>(f), {});
}

void open_elf(context_state &c, device *d, const design *g)
{
#if HAVE_ELF
	xrt::elf elf{std::string(g->file)};
	c.hardware = xrt::hw_context(d->handle, elf);
	c.kernel = xrt::ext::kernel(c.hardware, g->kernel);
	c.elf = true;
#else
	(void)c;
	(void)d;
	(void)g;
	throw std::runtime_error("this XRT cannot load a full ELF image, which needs 2.19: install a newer one and "
				 "build the module again, or use a kernel set with xclbin images");
#endif
}

/*
 * Hands an image to XRT, once. 2.13 keeps pointers into what it knows of an image for as long as a run of it lives, and
 * frees that when any image is loaded, the same one too: a kernel opened while an unfinished run is parked would then
 * read freed memory. It has one image at a time, so that another one must wait for such runs.
 */
std::shared_ptr<loaded_image> load(device *d, const char *file)
{
	std::lock_guard<std::mutex> hold(d->lock);

	for (auto &i : d->images)
		if (i->file == file)
			return i;
#if HAVE_HW_CONTEXT
	auto uuid = d->handle.register_xclbin(xrt::xclbin{std::string(file)});
#else
	for (auto &i : d->images)
		if (i.use_count() > 1)
			throw std::system_error(EBUSY, std::generic_category(),
						"an unfinished launch keeps another image loaded");
	d->images.clear();
	auto uuid = d->handle.load_xclbin(std::string(file));
#endif
	d->images.push_back(std::make_shared<loaded_image>(loaded_image{file, uuid}));
	return d->images.back();
}

void open_xclbin(context_state &c, device *d, const design *g)
{
	c.image = load(d, g->file);
#if HAVE_HW_CONTEXT
	c.hardware = xrt::hw_context(d->handle, c.image->uuid);
	c.kernel = xrt::kernel(c.hardware, g->kernel);
#else
	c.kernel = xrt::kernel(d->handle, c.image->uuid, g->kernel);
#endif
	auto stream = read_file(g->instructions);
	c.words = static_cast<uint32_t>(stream.size() / 4);
	c.instructions = xrt::bo(d->handle, stream.size(), xrt::bo::flags::cacheable, c.kernel.group_id(1));
	c.instructions.write(stream.data(), stream.size(), 0);
	c.instructions.sync(XCL_BO_SYNC_BO_TO_DEVICE, stream.size(), 0);
	std::lock_guard<std::mutex> hold(d->lock);
	for (int i = 0; i < buffers; i++)
		d->groups[i] = c.kernel.group_id(first_buffer + i);
}

/*
 * The driver gives the same EINVAL for a bad image and for a context too many. The image is good if it was opened
 * before; otherwise the driver's count decides, where it tells.
 */
int context_code(device *d, const design *g, int code, int number)
{
	uint32_t used = 0, most = 0;

	if (number == ENOSPC || number == EBUSY)
		return DEVICE_E_NO_CONTEXT;
	if (code == DEVICE_E_NO_MEMORY || code == DEVICE_E_DENIED)
		return code;
	std::lock_guard<std::mutex> hold(d->lock);
	if (number == EINVAL && std::count(d->opened.begin(), d->opened.end(), g->file))
		return DEVICE_E_NO_CONTEXT;
	if (contexts(d->node, &used, &most) && used >= most)
		return DEVICE_E_NO_CONTEXT;
	return code == DEVICE_E_BAD_CALL ? DEVICE_E_BAD_KERNEL : code;
}

int xrt_context_open(device_context **out, device *d, const design *g, device_why *why)
{
	int number = 0;
	int code = guard(
		why,
		[&] {
			auto c = std::make_unique<device_context>();
			c->state = std::make_shared<context_state>();
			if (g->image == DEVICE_ELF)
				open_elf(*c->state, d, g);
			else
				open_xclbin(*c->state, d, g);
			std::lock_guard<std::mutex> hold(d->lock);
			if (!std::count(d->opened.begin(), d->opened.end(), g->file))
				d->opened.emplace_back(g->file);
			*out = c.release();
		},
		&number);
	if (code) {
		int better = code;
		if (guard(nullptr, [&] { better = context_code(d, g, code, number); }) == DEVICE_OK)
			code = better;
	}
	return code;
}

void xrt_context_close(device_context *c)
{
	guard(nullptr, [&] { delete c; });
}

int xrt_buffer_new(device_buffer **out, device *d, device_use use, size_t size, void **map, device_why *why)
{
	return guard(why, [&] {
		auto b = std::make_unique<device_buffer>();
#if HAVE_EXT
		(void)use;
		b->bo = xrt::ext::bo(d->handle, size);
#else
		int group;
		{
			std::lock_guard<std::mutex> hold(d->lock);
			group = d->groups[use];
		}
		b->bo = xrt::bo(d->handle, size, xrt::bo::flags::host_only, group);
#endif
		*map = b->bo.map();
		std::memset(*map, 0, size);
		*out = b.release();
	});
}

int xrt_buffer_sync(device_buffer *b, device_direction to, size_t from, size_t size, device_why *why)
{
	return guard(why, [&] {
		/* XRT 2.13 reads and writes past the end without a word. */
		if (from > b->bo.size() || size > b->bo.size() - from)
			throw std::system_error(ERANGE, std::generic_category(), "a range outside of its buffer");
		b->bo.sync(to == DEVICE_TO ? XCL_BO_SYNC_BO_TO_DEVICE : XCL_BO_SYNC_BO_FROM_DEVICE, size, from);
	});
}

void xrt_buffer_free(device_buffer *b)
{
	guard(nullptr, [&] { delete b; });
}

int xrt_launch(device_run **out, device_context *c, device_buffer *a, device_buffer *b, device_buffer *to,
	       device_why *why)
{
	int code = guard(why, [&] {
		auto r = std::make_unique<device_run>();
		r->keep = c->state;
		r->run = xrt::run(c->state->kernel);
		int at = 0;
		if (!c->state->elf) {
			r->run.set_arg(0, opcode_run);
			r->run.set_arg(1, c->state->instructions);
			r->run.set_arg(2, c->state->words);
			at = first_buffer;
		}
		r->run.set_arg(at, a->bo);
		r->run.set_arg(at + 1, b->bo);
		r->run.set_arg(at + 2, to->bo);
		r->run.start();
		*out = r.release();
	});
	return code == DEVICE_OK ? code : DEVICE_E_FAULT;
}

device_state xrt_wait(device_run *r, uint32_t ms)
{
	device_state state = DEVICE_FAILED;

	/*
	 * wait() says TIMEOUT both when the time given is over and when the driver ended the command: only the
	 * command's own state tells. And 0 would be for ever.
	 */
	if (ms)
		guard(nullptr, [&] { r->run.wait(std::chrono::milliseconds(ms)); });
	guard(nullptr, [&] {
		switch (r->run.state()) {
		case ERT_CMD_STATE_NEW:
		case ERT_CMD_STATE_QUEUED:
		case ERT_CMD_STATE_RUNNING:
		case ERT_CMD_STATE_SUBMITTED:
			state = DEVICE_BUSY;
			break;
		case ERT_CMD_STATE_COMPLETED:
			state = DEVICE_COMPLETED;
			break;
		case ERT_CMD_STATE_TIMEOUT:
		case ERT_CMD_STATE_NORESPONSE:
			state = DEVICE_TIMED_OUT;
			break;
		default:
			break;
		}
	});
	return state;
}

void xrt_run_free(device_run *r)
{
	guard(nullptr, [&] { delete r; });
}

const device_table table = {
	DEVICE_ABI,	   "xrt",	   xrt_open,	    xrt_close,	    xrt_limits, xrt_context_open,
	xrt_context_close, xrt_buffer_new, xrt_buffer_sync, xrt_buffer_free, xrt_launch, xrt_wait,
	xrt_run_free,
};
} // namespace

extern "C" __attribute__((visibility("default"))) const device_table *npud_device_xrt(void)
{
	return &table;
}
