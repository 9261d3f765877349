#pragma once
#include "../xrt_device.h"
