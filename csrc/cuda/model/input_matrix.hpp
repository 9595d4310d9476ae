// Inputs as the caller passed them: any strides, one of three types, in the host's memory or a device's.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/model/device_place.hpp"
#include "shared/host_device.hpp"

namespace patrac {

// The type of an entry. A float32 model rounds doubles to float32 as it reads them.
enum class InputType : std::uint8_t { bytes, floats, doubles, rounded_doubles };

constexpr std::int64_t bytes_of(InputType type) {
    switch (type) {
        case InputType::bytes: return 1;
        case InputType::floats: return 4;
        case InputType::doubles:
        case InputType::rounded_doubles: return 8;
    }
    __builtin_unreachable();
}

// (rows, columns): entry (r, j) at data[r * row_step + j * column_step].
struct InputMatrix {
    const void* data = nullptr;
    InputType type = InputType::doubles;
    std::int64_t row_step = 0, column_step = 0;

    PATRAC_HOST_DEVICE double at(std::int64_t row, std::int64_t column) const {
        const std::int64_t i = row * row_step + column * column_step;
        switch (type) {
            case InputType::bytes: return static_cast<const std::uint8_t*>(data)[i];
            case InputType::floats: return static_cast<double>(static_cast<const float*>(data)[i]);
            case InputType::doubles: return static_cast<const double*>(data)[i];
            case InputType::rounded_doubles: break;
        }
        return static_cast<double>(static_cast<float>(static_cast<const double*>(data)[i]));
    }
    InputMatrix from_row(std::int64_t row) const {
        InputMatrix rest = *this;
        rest.data = static_cast<const char*>(data) + row * row_step * bytes_of(type);
        return rest;
    }
};

// The inputs of a data set and their owner.
struct InputSource {
    InputMatrix matrix;
    std::int64_t n_rows = 0, n_columns = 0;
    DevicePlace place;  // of the memory; a device reads it where it is if the place is its own
    std::shared_ptr<const void> owner;
};

// The result of inspecting inputs.
struct InputFindings {
    std::int64_t bad = 0;  // entries that are not finite or exceed what is allowed
    bool bytes = true;     // all are whole numbers from 0 to 255
};

}  // namespace patrac
