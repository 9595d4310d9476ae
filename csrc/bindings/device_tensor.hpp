// Draws that stay on a device, as Python sees them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "device.hpp"

namespace patrac::bindings {

// (chains, draws, K) in memory of a device that the tensor shares in owning. Draws of the run that are not among these
// leave gaps between chains.
struct DeviceTensor {
    std::shared_ptr<const DeviceMemory> memory;
    std::int64_t element_bytes;  // of float32 or float64
    std::array<std::int64_t, 3> shape;
    std::int64_t pitch;      // elements from chain to chain
    std::int64_t first = 0;  // element where they begin

    char* data() const { return static_cast<char*>(memory->data()) + first * element_bytes; }
    std::array<std::int64_t, 3> strides() const { return {pitch, shape[2], 1}; }
};

}  // namespace patrac::bindings
