#pragma once
#include "xrt_device.h"
#include <cstddef>
#include <cstdint>

enum xclBOSyncDirection { XCL_BO_SYNC_BO_TO_DEVICE = 0, XCL_BO_SYNC_BO_FROM_DEVICE };

namespace xrt
{
using memory_group = uint32_t;
class bo
{
      public:
	enum class flags : uint32_t { normal = 0, cacheable = 1u << 24, host_only = 1u << 29 };
	bo() = default;
	bo(const device &device, size_t size, flags flags, memory_group group);
	size_t size() const;
	void *map();
	void sync(xclBOSyncDirection direction, size_t size, size_t offset);
	void write(const void *from, size_t size, size_t seek);
};
} // namespace xrt
