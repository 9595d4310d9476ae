// The structures of DLPack 1.0 by which libraries hand arrays to each other (https://dmlc.github.io/dlpack), as far as
// they are needed here: layout and names are the standard's.
#pragma once

#include <cstdint>

namespace patrac::bindings::dlpack {

struct Device {
    std::int32_t type;  // 1: host, 2: CUDA
    std::int32_t id;
};

struct DataType {
    std::uint8_t code;  // 1: unsigned integer, 2: float
    std::uint8_t bits;
    std::uint16_t lanes;
};

struct Tensor {
    void* data;
    Device device;
    std::int32_t ndim;
    DataType dtype;
    std::int64_t* shape;
    std::int64_t* strides;  // in elements
    std::uint64_t byte_offset;
};

// Before version 1.
struct ManagedTensor {
    static constexpr const char *name = "dltensor", *used = "used_dltensor";
    Tensor tensor;
    void* context;
    void (*deleter)(ManagedTensor*);
};

struct ManagedTensorVersioned {
    static constexpr const char *name = "dltensor_versioned", *used = "used_dltensor_versioned";
    std::uint32_t major = 1, minor = 0;
    void* context;
    void (*deleter)(ManagedTensorVersioned*);
    std::uint64_t flags = 0;  // may be written to, and is no copy
    Tensor tensor;
};

}  // namespace patrac::bindings::dlpack
