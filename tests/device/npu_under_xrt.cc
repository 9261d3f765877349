/*
 * An NPU for tests beneath Debian's XRT 2.13: the functions of a driver library (xcl...), which the objects of
 * Debian's own libxrt_swemu.a call, over the simulation of kernels/device. Built at test time, never
 * installed. Only public headers and names of symbols are used; it does not link against another XRT.
 *
 * NPUD_TEST_NPU holds its settings (simulation.h). Every buffer has two memories, the host's and the device's,
 * which only a sync makes equal; kernels see the device's alone, by address, and an address outside of every
 * buffer ends a launch as failed. Instructions are those of kernel_files.h.
 */
#include "simulation.h"
#include <ert.h>
#include <xclbin.h>
#include <xrt.h>
#include <xrt/xrt_device.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

/* Inside of XRT, reached by the names of their symbols. */
namespace xrt_core
{
std::shared_ptr<device> get_userpf_device(void *, unsigned int);
}
extern "C" void register_axlf(void *self,
			      const axlf *) __asm__("_ZN8xrt_core6device13register_axlfEPK4axlf");
extern "C" int
swemu_query(void *, int) __asm__("_ZN12xclcpuemhal29CpuemShim11deviceQueryEN8xrt_core5query8key_typeE");
extern "C" int swemu_query(void *, int)
{
	return 0;
}
extern "C" void *swemu_check(void *) __asm__("_ZN12xclcpuemhal29CpuemShim11handleCheckEPv");
extern "C" void *swemu_check(void *)
{
	return nullptr;
}

namespace
{
using clock_type = std::chrono::steady_clock;
using ms = std::chrono::milliseconds;

struct buffer {
	char *host, *shadow;
	size_t size, mapped;
	unsigned flags;
};

struct command {
	ert_packet *packet;
	unsigned context; /* which opening of a context it came through */
	uint64_t number;  /* of the launch, once it was taken up */
	bool hanging;
	clock_type::time_point until; /* when the watchdog ends it */
};

struct npu {
	std::shared_ptr<xrt_core::device> core;
	std::mutex lock;
	std::condition_variable work, done;
	std::map<unsigned, buffer> buffers;
	unsigned next_buffer = 1;
	std::deque<command> queue;
	uint64_t completions = 0, seen = 0, launches = 0, openings = 0, heap_used = 0;
	unsigned contexts = 0, context = 0;
	clock_type::time_point last_used, no_context_until;
	bool stop = false;
	simulation settings;
	std::thread thread;

	explicit npu(unsigned index)
	{
		const char *text = getenv("NPUD_TEST_NPU");
		char why[400];
		if (!simulation_parse(&settings, text ? text : "", why, sizeof why)) {
			std::fprintf(stderr, "NPUD_TEST_NPU: %s\n", why);
			std::abort();
		}
		core = xrt_core::get_userpf_device(this, index);
		last_used = no_context_until = clock_type::now();
		thread = std::thread([this] { serve(); });
	}

	~npu()
	{
		{
			std::lock_guard<std::mutex> hold(lock);
			stop = true;
		}
		work.notify_all();
		thread.join();
		for (auto &b : buffers)
			drop(b.second);
	}

	static void drop(buffer &b)
	{
		munmap(b.host, b.mapped);
		munmap(b.shadow, b.mapped);
	}

	/* The device's memory at an address, if that many bytes of one buffer are there. */
	char *reach(uint64_t address, size_t size)
	{
		for (auto &b : buffers) {
			auto from = reinterpret_cast<uint64_t>(b.second.shadow);
			if (address >= from && address - from <= b.second.size && size <= b.second.size - (address - from))
				return b.second.shadow + (address - from);
		}
		return nullptr;
	}

	struct launch {
		const int8_t *a, *b;
		int32_t *c;
		uint32_t rows, kd, nd, layout;
	};

	/* What a command asks for; false where it makes no sense. */
	bool decode(const ert_packet *packet, launch &l)
	{
		auto start = reinterpret_cast<const ert_start_kernel_cmd *>(packet);
		auto registers = reinterpret_cast<const char *>(start->data + start->extra_cu_masks);
		uint64_t opcode, stream, a, b, c;
		uint32_t words;

		if (packet->opcode != ERT_START_CU)
			return false;
		std::memcpy(&opcode, registers + 0x10, 8);
		std::memcpy(&stream, registers + 0x18, 8);
		std::memcpy(&words, registers + 0x20, 4);
		std::memcpy(&a, registers + 0x24, 8);
		std::memcpy(&b, registers + 0x2c, 8);
		std::memcpy(&c, registers + 0x34, 8);
		auto in = reinterpret_cast<const uint32_t *>(reach(stream, 32));
		if (opcode != 3 || words != 8 || !in || in[3] != 32)
			return false;
		l.rows = in[4];
		l.kd = in[5];
		l.nd = in[6];
		l.layout = in[7];
		l.a = reinterpret_cast<int8_t *>(reach(a, size_t{l.rows} * l.kd));
		l.b = reinterpret_cast<int8_t *>(reach(b, size_t{l.kd} * l.nd));
		l.c = reinterpret_cast<int32_t *>(reach(c, size_t{l.rows} * l.nd * 4));
		return l.a && l.b && l.c;
	}

	/* Carries a launch out, with its fault. The lock is let go while computing. */
	uint32_t carry_out(const command &c, enum simulation_fault fault, std::unique_lock<std::mutex> &hold)
	{
		launch l = {};

		if (fault == SIMULATION_ERROR || !decode(c.packet, l))
			return ERT_CMD_STATE_ERROR;
		if (fault == SIMULATION_TIMEOUT)
			return ERT_CMD_STATE_TIMEOUT;
		hold.unlock();
		if (settings.latency_us)
			std::this_thread::sleep_for(std::chrono::microseconds(settings.latency_us));
		if (fault != SIMULATION_STALE && fault != SIMULATION_GARBAGE)
			simulation_compute(l.a, l.b, l.c, l.rows, l.kd, l.nd, l.layout);
		simulation_spoil(fault, c.number, l.c, l.rows, l.nd);
		hold.lock();
		return ERT_CMD_STATE_COMPLETED;
	}

	void finish(const command &c, uint32_t state)
	{
		c.packet->state = state;
		completions++;
		last_used = clock_type::now();
		done.notify_all();
	}

	/* The next command that can be worked on: one that hangs holds up those behind it in its context. */
	std::deque<command>::iterator next(clock_type::time_point now)
	{
		return std::find_if(queue.begin(), queue.end(), [&](const command &c) {
			if (c.hanging)
				return settings.watchdog_ms && now >= c.until;
			return std::none_of(queue.begin(), queue.end(), [&](const command &other) {
				return other.hanging && other.context == c.context;
			});
		});
	}

	void step(std::deque<command>::iterator at, std::unique_lock<std::mutex> &hold)
	{
		auto now = clock_type::now();
		command c = *at;

		if (c.hanging) { /* ended by the watchdog, after the device has written once more */
			queue.erase(at);
			carry_out(c, SIMULATION_GARBAGE, hold);
			finish(c, ERT_CMD_STATE_TIMEOUT);
			return;
		}
		c.number = ++launches;
		auto fault = fault_of(c, now);
		if (fault == SIMULATION_HANG) {
			c.hanging = true;
			c.until = now + ms(settings.watchdog_ms);
			*at = c;
			return;
		}
		queue.erase(at);
		finish(c, carry_out(c, fault, hold));
	}

	enum simulation_fault fault_of(const command &c, clock_type::time_point now)
	{
		if (settings.lost_ms && now - last_used >= ms(settings.lost_ms))
			return SIMULATION_ERROR;
		return simulation_fault(&settings, c.number);
	}

	void serve()
	{
		std::unique_lock<std::mutex> hold(lock);
		while (!stop) {
			auto at = next(clock_type::now());
			if (at != queue.end())
				step(at, hold);
			else if (queue.empty())
				work.wait(hold);
			else
				work.wait_for(hold, ms(5)); /* something hangs */
		}
	}
};

npu *of(xclDeviceHandle handle)
{
	return static_cast<npu *>(handle);
}

char *memory(size_t size)
{
	void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? nullptr : static_cast<char *>(p);
}
} // namespace

extern "C" {
unsigned xclProbe()
{
	return 1;
}

xclDeviceHandle xclOpen(unsigned index, const char *, xclVerbosityLevel)
{
	try {
		return new npu(index);
	} catch (...) {
		return nullptr;
	}
}

void xclClose(xclDeviceHandle h)
{
	delete of(h);
}

unsigned xclVersion()
{
	return 2;
}

xclBufferHandle xclAllocBO(xclDeviceHandle h, size_t size, int, unsigned flags)
{
	npu *n = of(h);
	size_t mapped = (size + 4095) / 4096 * 4096;
	std::lock_guard<std::mutex> hold(n->lock);

	if (n->settings.heap_bytes && n->heap_used + size > n->settings.heap_bytes)
		return XRT_NULL_BO;
	buffer b = {memory(mapped), memory(mapped), size, mapped, flags};
	if (!b.host || !b.shadow)
		return XRT_NULL_BO;
	n->heap_used += size;
	n->buffers[n->next_buffer] = b;
	return n->next_buffer++;
}

xclBufferHandle xclAllocUserPtrBO(xclDeviceHandle, void *, size_t, unsigned)
{
	return XRT_NULL_BO;
}

void xclFreeBO(xclDeviceHandle h, xclBufferHandle handle)
{
	npu *n = of(h);
	std::lock_guard<std::mutex> hold(n->lock);
	auto at = n->buffers.find(handle);

	if (at == n->buffers.end())
		return;
	n->heap_used -= at->second.size;
	npu::drop(at->second);
	n->buffers.erase(at);
}

void *xclMapBO(xclDeviceHandle h, xclBufferHandle handle, bool)
{
	npu *n = of(h);
	std::lock_guard<std::mutex> hold(n->lock);
	auto at = n->buffers.find(handle);

	return at == n->buffers.end() ? nullptr : at->second.host;
}

int xclUnmapBO(xclDeviceHandle, xclBufferHandle, void *)
{
	return 0;
}

int xclSyncBO(xclDeviceHandle h, xclBufferHandle handle, xclBOSyncDirection to, size_t size, size_t from)
{
	npu *n = of(h);
	std::lock_guard<std::mutex> hold(n->lock);
	auto at = n->buffers.find(handle);

	if (at == n->buffers.end() || from > at->second.size || size > at->second.size - from)
		return -EINVAL;
	if (to == XCL_BO_SYNC_BO_TO_DEVICE)
		std::memcpy(at->second.shadow + from, at->second.host + from, size);
	else
		std::memcpy(at->second.host + from, at->second.shadow + from, size);
	return 0;
}

int xclCopyBO(xclDeviceHandle, xclBufferHandle, xclBufferHandle, size_t, size_t, size_t)
{
	return -ENOSYS;
}

/* Writes and reads go to the host's memory: a sync is still due. */
size_t xclWriteBO(xclDeviceHandle h, xclBufferHandle handle, const void *from, size_t size, size_t at)
{
	std::memcpy(static_cast<char *>(xclMapBO(h, handle, true)) + at, from, size);
	return 0;
}

size_t xclReadBO(xclDeviceHandle h, xclBufferHandle handle, void *to, size_t size, size_t at)
{
	std::memcpy(to, static_cast<char *>(xclMapBO(h, handle, false)) + at, size);
	return 0;
}

int xclGetBOProperties(xclDeviceHandle h, xclBufferHandle handle, xclBOProperties *p)
{
	npu *n = of(h);
	std::lock_guard<std::mutex> hold(n->lock);
	auto at = n->buffers.find(handle);

	if (at == n->buffers.end())
		return -ENOENT;
	p->handle = handle;
	p->flags = at->second.flags;
	p->size = at->second.size;
	p->paddr = reinterpret_cast<uint64_t>(at->second.shadow);
	return 0;
}

xclBufferExportHandle xclExportBO(xclDeviceHandle, xclBufferHandle)
{
	return XRT_NULL_BO_EXPORT;
}

xclBufferHandle xclImportBO(xclDeviceHandle, xclBufferExportHandle, unsigned)
{
	return XRT_NULL_BO;
}

int xclLoadXclBin(xclDeviceHandle h, const axlf *image)
{
	register_axlf(of(h)->core.get(), image);
	return 0;
}

/* XRT also opens a virtual unit, -1, which is no context of the hardware. */
int xclOpenContext(xclDeviceHandle h, const xuid_t, unsigned unit, bool)
{
	npu *n = of(h);
	if (unit == ~0u)
		return 0;
	std::lock_guard<std::mutex> hold(n->lock);
	auto now = clock_type::now();

	if (++n->openings == n->settings.no_context_at)
		n->no_context_until = now + ms(n->settings.no_context_ms);
	if (now < n->no_context_until || n->contexts + n->settings.others >= n->settings.contexts_max)
		return -ENOSPC;
	n->contexts++;
	n->context++;
	n->last_used = now;
	return 0;
}

int xclCloseContext(xclDeviceHandle h, const xuid_t, unsigned unit)
{
	npu *n = of(h);
	if (unit == ~0u)
		return 0;
	std::lock_guard<std::mutex> hold(n->lock);

	n->contexts--;
	return 0;
}

int xclExecBuf(xclDeviceHandle h, xclBufferHandle handle)
{
	npu *n = of(h);
	std::lock_guard<std::mutex> hold(n->lock);
	auto at = n->buffers.find(handle);

	if (at == n->buffers.end())
		return -ENOENT;
	n->queue.push_back({reinterpret_cast<ert_packet *>(at->second.host), n->context, 0, false, {}});
	n->work.notify_one();
	return 0;
}

int xclExecWait(xclDeviceHandle h, int timeout)
{
	npu *n = of(h);
	std::unique_lock<std::mutex> hold(n->lock);
	bool any = n->done.wait_for(hold, ms(timeout), [&] { return n->completions > n->seen; });

	n->seen = n->completions;
	return any ? 1 : 0;
}

int xclGetDeviceInfo2(xclDeviceHandle, xclDeviceInfo2 *info)
{
	std::memset(info, 0, sizeof *info);
	return 0;
}

int xclLockDevice(xclDeviceHandle)
{
	return 0;
}

int xclUnlockDevice(xclDeviceHandle)
{
	return 0;
}

int xclReClock2(xclDeviceHandle, unsigned short, const uint16_t *)
{
	return -ENOSYS;
}

int xclP2pEnable(xclDeviceHandle, bool, bool)
{
	return -ENOSYS;
}

int xclRegRead(xclDeviceHandle, uint32_t, uint32_t, uint32_t *)
{
	return -ENOSYS;
}

int xclRegWrite(xclDeviceHandle, uint32_t, uint32_t, uint32_t)
{
	return -ENOSYS;
}

size_t xclRead(xclDeviceHandle, xclAddressSpace, uint64_t, void *, size_t)
{
	return 0;
}

size_t xclWrite(xclDeviceHandle, xclAddressSpace, uint64_t, const void *, size_t)
{
	return 0;
}

ssize_t xclUnmgdPread(xclDeviceHandle, unsigned, void *, size_t, uint64_t)
{
	return -1;
}

ssize_t xclUnmgdPwrite(xclDeviceHandle, unsigned, const void *, size_t, uint64_t)
{
	return -1;
}
}

/* C++ functions that the objects of the archive name. */
int xclCloseExportHandle(xclBufferExportHandle fd)
{
	return ::close(fd) ? -errno : 0;
}

int xclUpdateSchedulerStat(xclDeviceHandle)
{
	return -ENOSYS;
}

int xclInternalResetDevice(xclDeviceHandle, xclResetKind)
{
	return -ENOSYS;
}

int xclCmaEnable(xclDeviceHandle, bool, uint64_t)
{
	return -ENOSYS;
}
