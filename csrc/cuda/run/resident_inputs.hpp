// Inputs that another library has on the device, or a copy of them there.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "cuda/run/readable_inputs.hpp"

namespace patrac::PATRAC_LEVEL {

class ResidentInputs final : public DeviceInputs {
public:
    // All work on the source's memory, which the device reads, is done. A copy releases it.
    ResidentInputs(std::shared_ptr<Device> device, InputSource source, bool copy)
        : device_(std::move(device)), source_(std::move(source)) {
        if (!copy) return;
        copy_ = without_gaps();
        source_.matrix.data = copy_.data();
        source_.matrix.row_step = source_.n_columns;
        source_.matrix.column_step = 1;
        source_.owner = nullptr;
    }

    const InputSource& source() const override { return source_; }
    InputFindings inspect(double max_magnitude) const override {
        return PATRAC_LEVEL::inspect(*device_, {source_.matrix, source_.n_rows, nullptr,
                                                static_cast<int>(source_.n_columns), max_magnitude, nullptr});
    }
    void download(void* to) const override {
        const InputMatrix& matrix = source_.matrix;
        if (matrix.column_step == 1 && matrix.row_step == source_.n_columns)
            device_->download(to, matrix.data,
                              static_cast<std::size_t>(source_.n_rows * source_.n_columns * bytes_of(matrix.type)));
        else
            without_gaps().download(static_cast<std::uint8_t*>(to));
    }

private:
    // (n_rows, n_columns) of the source's type.
    DeviceVector<std::uint8_t> without_gaps() const {
        const std::int64_t columns = source_.n_columns;
        DeviceVector<std::uint8_t> values(*device_, source_.n_rows * columns * bytes_of(source_.matrix.type));
        const auto copy_as = [&]<class X>(X* to) {
            device_->launch(row_copy(source_.matrix, source_.n_rows, nullptr, static_cast<int>(columns), columns, to));
        };
        switch (source_.matrix.type) {
            case InputType::bytes: copy_as(values.data()); break;
            case InputType::floats: copy_as(reinterpret_cast<float*>(values.data())); break;
            case InputType::doubles:
            case InputType::rounded_doubles: copy_as(reinterpret_cast<double*>(values.data())); break;
        }
        device_->wait();
        return values;
    }

    std::shared_ptr<Device> device_;  // outlives the copy
    InputSource source_;
    DeviceVector<std::uint8_t> copy_;
};

}  // namespace patrac::PATRAC_LEVEL
