// The inputs of a wide first layer as the matrix units read them, laid out on the device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda/model/data_set.hpp"
#include "cuda/run/device.hpp"
#include "cuda/run/readable_inputs.hpp"
#include "cuda/wide/wide_layer.hpp"

namespace patrac::PATRAC_LEVEL {

// All of it in the device's memory; empty where the first layer is not wide.
class WideMemory {
public:
    WideMemory() = default;
    // `from` are the data set's inputs, of which the layer reads those of `columns` (device array).
    WideMemory(Device& device, const DataSet<float>& flat, const InputMatrix& from, const int* columns) {
        const FlatLayer& layer = flat.layers.front();
        if (!pays(flat)) return;
        const auto up = [](int count, int to) { return (count + to - 1) / to * to; };
        inputs.features = layer.n_constant;
        inputs.padded_features = up(layer.n_constant, wide_depth);
        inputs.padded_rows = up(flat.n_rows, wide_depth);
        inputs.bytes = from.type == InputType::bytes || inspect(device, {from, flat.n_rows, columns, layer.n_constant,
                                                                         std::numeric_limits<double>::max(), nullptr})
                                                            .bytes;
        if (inputs.bytes)
            fill(device, from, flat.n_rows, columns, bytes_by_row_, bytes_by_feature_);
        else
            fill(device, from, flat.n_rows, columns, floats_by_row_, floats_by_feature_);
        std::vector<int> entry(static_cast<std::size_t>(flat.dim), -1);
        for (int b = layer.first_gradient; b < layer.first_gradient + layer.n_gradients; ++b) {
            const FlatDenseGradient& block = flat.gradients[static_cast<std::size_t>(b)];
            const auto index = [&](int at) { return flat.indices[static_cast<std::size_t>(at)]; };
            for (int i = 0; i < block.n_rows; ++i)
                for (int j = 0; j < block.n_sources; ++j)
                    if (const int k = index(block.theta + i * block.n_sources + j); k >= 0)
                        entry[static_cast<std::size_t>(k)] =
                            index(block.rows + i) * inputs.sums_pitch() + index(block.sources + j);
        }
        entry_ = DeviceVector<int>(device, entry);
        inputs.entry = entry_.data();
    }

    // Fewer features are as well read by the tiles themselves. So are fewer inputs in all: on an H100 a block alone
    // needs 5 to 8 ns for each, of 4 and of 50 nodes, and four of the six launches of a shared step take 32 us.
    static constexpr std::int64_t min_features = 256, min_inputs = 1 << 13;

    // The inputs again, as blocks that evaluate alone read them.
    InputMatrix by_row() const {
        return {inputs.by_row, inputs.bytes ? InputType::bytes : InputType::floats, inputs.padded_features, 1};
    }
    std::int64_t bytes() const {
        return bytes_by_row_.bytes() + bytes_by_feature_.bytes() + floats_by_row_.bytes() + floats_by_feature_.bytes() +
               entry_.bytes();
    }

    WideInputs inputs{};

private:
    static bool pays(const DataSet<float>& flat) {
        const std::int64_t features = flat.layers.front().n_constant;
        return features >= min_features && features * flat.n_rows >= min_inputs;
    }
    // A warp reads up to 31 rows beyond the last.
    static constexpr int beyond = 32;

    // What is not written is zero.
    template <class X>
    void fill(Device& device, const InputMatrix& from, std::int64_t n, const int* columns, DeviceVector<X>& by_row,
              DeviceVector<X>& by_feature) {
        const int features = inputs.features;
        by_row = DeviceVector<X>(device, (n + beyond) * inputs.padded_features);
        device.launch(row_copy(from, n, columns, features, inputs.padded_features, by_row.data()));
        // After the features the ones that biases multiply.
        by_feature = DeviceVector<X>(device, (features + std::int64_t{1} + beyond) * inputs.padded_rows);
        device.launch(column_copy(from, n, columns, features, inputs.padded_rows, by_feature.data()));
        by_feature.upload(std::int64_t{features} * inputs.padded_rows,
                          std::vector<X>(static_cast<std::size_t>(n), X(1)));
        inputs.by_row = by_row.data();
        inputs.by_feature = by_feature.data();
    }

    DeviceVector<std::uint8_t> bytes_by_row_, bytes_by_feature_;
    DeviceVector<float> floats_by_row_, floats_by_feature_;
    DeviceVector<int> entry_;
};

}  // namespace patrac::PATRAC_LEVEL
