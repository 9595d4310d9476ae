// The inputs of a wide first layer as the matrix units read them, made of a flattened model.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "device.hpp"
#include "flat_model.hpp"
#include "wide_layer.hpp"

namespace patrac::PATRAC_LEVEL {

// All of it in the device's memory; empty where the first layer is not wide.
class WideMemory {
public:
    WideMemory() = default;
    WideMemory(Device& device, const FlatModel<float>& flat) {
        const FlatLayer& layer = flat.layers.front();
        if (!pays(flat)) return;
        const auto up = [](int count, int to) { return (count + to - 1) / to * to; };
        inputs.features = layer.n_constant;
        inputs.padded_features = up(layer.n_constant, wide_depth);
        inputs.padded_rows = up(flat.n_rows, wide_depth);
        inputs.bytes = true;
        for (int r = 0; inputs.bytes && r < flat.n_rows; ++r)
            for (int j = 0; inputs.bytes && j < inputs.features; ++j) inputs.bytes = is_byte(input(flat, r, j));
        if (inputs.bytes) {
            inputs.by_row = by_row(device, flat, bytes_by_row_);
            inputs.by_feature = by_feature(device, flat, bytes_by_feature_);
        } else {
            inputs.by_row = by_row(device, flat, floats_by_row_);
            inputs.by_feature = by_feature(device, flat, floats_by_feature_);
        }
        std::vector<int> entry(static_cast<std::size_t>(flat.dim), -1);
        for (int b = layer.first_block; b < layer.first_block + layer.n_blocks; ++b) {
            const FlatGradientBlock& block = flat.blocks[static_cast<std::size_t>(b)];
            const auto index = [&](int at) { return flat.indices[static_cast<std::size_t>(at)]; };
            for (int i = 0; i < block.n_rows; ++i)
                for (int j = 0; j < block.n_sources; ++j)
                    if (const int k = index(block.theta + i * block.n_sources + j); k >= 0)
                        entry[static_cast<std::size_t>(k)] =
                            index(block.rows + i) * inputs.sums_pitch() + index(block.sources + j);
        }
        entry_ = DeviceArray<int>(device, entry);
        inputs.entry = entry_.data();
    }

    WideInputs inputs{};

private:
    // Fewer features are as well read by the tiles themselves.
    static bool pays(const FlatModel<float>& flat) {
        constexpr int fewest_features = 256;
        return flat.layers.front().n_constant >= fewest_features;
    }
    static bool is_byte(float x) { return x >= 0.0f && x <= 255.0f && x == std::floor(x); }
    static float input(const FlatModel<float>& flat, int row, int feature) {
        return flat.tiles[static_cast<std::size_t>(std::int64_t{row / flat.stride} * flat.tile_size +
                                                   flat.layers.front().constants + std::int64_t{feature} * flat.stride +
                                                   row % flat.stride)];
    }
    // A warp reads up to 31 rows beyond the last.
    static constexpr int beyond = 32;

    // (n + beyond, padded_features), zero beyond the data.
    template <class X>
    const void* by_row(Device& device, const FlatModel<float>& flat, DeviceArray<X>& to) const {
        std::vector<X> values(static_cast<std::size_t>(std::int64_t{flat.n_rows + beyond} * inputs.padded_features));
        for (int r = 0; r < flat.n_rows; ++r)
            for (int j = 0; j < inputs.features; ++j)
                values[static_cast<std::size_t>(std::int64_t{r} * inputs.padded_features + j)] =
                    static_cast<X>(input(flat, r, j));
        to = DeviceArray<X>(device, values);
        return to.data();
    }
    // (features + 1 + beyond, padded_rows): after the features the ones that biases multiply.
    template <class X>
    const void* by_feature(Device& device, const FlatModel<float>& flat, DeviceArray<X>& to) const {
        std::vector<X> values(
            static_cast<std::size_t>(std::int64_t{inputs.features + 1 + beyond} * inputs.padded_rows));
        for (int j = 0; j <= inputs.features; ++j)
            for (int r = 0; r < flat.n_rows; ++r)
                values[static_cast<std::size_t>(std::int64_t{j} * inputs.padded_rows + r)] =
                    j < inputs.features ? static_cast<X>(input(flat, r, j)) : X(1);
        to = DeviceArray<X>(device, values);
        return to.data();
    }

    DeviceArray<std::uint8_t> bytes_by_row_, bytes_by_feature_;
    DeviceArray<float> floats_by_row_, floats_by_feature_;
    DeviceArray<int> entry_;
};

}  // namespace patrac::PATRAC_LEVEL
