// Inputs where a device reads them, and what it finds in them.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/run/device.hpp"

namespace patrac::PATRAC_LEVEL {

// The inputs of a data set where the device reads them: where they are, or sent there for as long as this lives.
class ReadableInputs {
public:
    // Those of the host have no gaps.
    ReadableInputs(Device& device, const InputSource& source) : matrix(source.matrix) {
        if (device.reads(source.place)) return;
        sent_ = DeviceVector<std::uint8_t>(device, source.n_rows * source.n_columns * bytes_of(matrix.type));
        sent_.upload(static_cast<const std::uint8_t*>(matrix.data));
        matrix.data = sent_.data();
    }

    InputMatrix matrix;

private:
    DeviceVector<std::uint8_t> sent_;
};

// What all workers find, see InspectWork.
inline InputFindings inspect(Device& device, InspectWork work) {
    std::vector<InputFindings> each(static_cast<std::size_t>(workers_of(work.items())));
    const DeviceVector<InputFindings> found(device, std::ssize(each));
    work.found = found.data();
    device.launch(work);
    found.download(each.data());
    InputFindings all;
    for (const InputFindings& one : each) {
        all.bad += one.bad;
        all.bytes = all.bytes && one.bytes;
    }
    return all;
}

}  // namespace patrac::PATRAC_LEVEL
