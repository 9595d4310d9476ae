// The inputs of a wide first layer as the matrix units read them, made of a flattened model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "device.hpp"
#include "flat_model.hpp"
#include "slab_memory.hpp"
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
        inputs.bytes = !flat.byte_inputs.empty();
        if (inputs.bytes)
            fill(device, flat, flat.byte_inputs, bytes_by_row_, bytes_by_feature_);
        else
            fill(device, flat, flat.inputs, floats_by_row_, floats_by_feature_);
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

    // The inputs again as tiles that blocks alone read, (n_tiles, features, stride).
    DeviceArray<float> tiles(Device& device, std::int64_t n, std::int64_t n_tiles, std::int64_t stride) const {
        return inputs.bytes ? tiles_of(device, bytes_by_row_, n, n_tiles, stride)
                            : tiles_of(device, floats_by_row_, n, n_tiles, stride);
    }
    std::int64_t bytes() const {
        return bytes_by_row_.bytes() + bytes_by_feature_.bytes() + floats_by_row_.bytes() + floats_by_feature_.bytes() +
               entry_.bytes();
    }

    WideInputs inputs{};

private:
    // Fewer features are as well read by the tiles themselves, as are those that no run would share.
    static bool pays(const FlatModel<float>& flat) {
        constexpr int fewest_features = 256;
        return flat.layers.front().n_constant >= fewest_features && shares_evaluations(1, flat.n_tiles);
    }
    // A warp reads up to 31 rows beyond the last.
    static constexpr int beyond = 32;

    // `values` as FlatModel::inputs. A tile or a feature at a time, so that the host holds no second copy of all; what
    // is not written is zero.
    template <class X>
    void fill(Device& device, const FlatModel<float>& flat, const std::vector<X>& values, DeviceArray<X>& by_row,
              DeviceArray<X>& by_feature) {
        const std::int64_t features = inputs.features, stride = flat.stride, n = flat.n_rows;
        const auto tile = [&](std::int64_t t) { return values.data() + t * features * stride; };
        by_row = DeviceArray<X>(device, (n + beyond) * inputs.padded_features);
        for (std::int64_t t = 0; t < flat.n_tiles; ++t) {
            const std::int64_t rows = std::min(stride, n - t * stride);
            std::vector<X> block(static_cast<std::size_t>(rows * inputs.padded_features));
            for (std::int64_t j = 0; j < features; ++j)
                for (std::int64_t r = 0; r < rows; ++r)
                    block[static_cast<std::size_t>(r * inputs.padded_features + j)] = tile(t)[j * stride + r];
            by_row.upload(t * stride * inputs.padded_features, block);
        }
        // After the features the ones that biases multiply.
        by_feature = DeviceArray<X>(device, (features + 1 + beyond) * inputs.padded_rows);
        for (std::int64_t j = 0; j <= features; ++j) {
            std::vector<X> row(static_cast<std::size_t>(n), X(1));
            for (std::int64_t t = 0; j < features && t < flat.n_tiles; ++t)
                std::copy_n(tile(t) + j * stride, std::min(stride, n - t * stride), row.begin() + t * stride);
            by_feature.upload(j * inputs.padded_rows, row);
        }
        inputs.by_row = by_row.data();
        inputs.by_feature = by_feature.data();
    }

    // See DevicePlan::inputs, of rows (n + beyond, padded_features).
    template <class X>
    DeviceArray<float> tiles_of(Device& device, const DeviceArray<X>& by_row, std::int64_t n, std::int64_t n_tiles,
                                std::int64_t stride) const {
        DeviceArray<float> tiles(device, n_tiles * inputs.features * stride);
        std::vector<X> rows;
        std::vector<float> tile(static_cast<std::size_t>(inputs.features * stride));
        for (std::int64_t t = 0; t < n_tiles; ++t) {
            const std::int64_t count = std::min(stride, n - t * stride);
            rows.resize(static_cast<std::size_t>(count * inputs.padded_features));
            by_row.download(t * stride * inputs.padded_features, rows);
            for (std::int64_t j = 0; j < inputs.features; ++j)
                for (std::int64_t r = 0; r < stride; ++r)
                    tile[static_cast<std::size_t>(j * stride + r)] = static_cast<float>(
                        rows[static_cast<std::size_t>(std::min(r, count - 1) * inputs.padded_features + j)]);
            tiles.upload(t * inputs.features * stride, tile);
        }
        return tiles;
    }

    DeviceArray<std::uint8_t> bytes_by_row_, bytes_by_feature_;
    DeviceArray<float> floats_by_row_, floats_by_feature_;
    DeviceArray<int> entry_;
};

}  // namespace patrac::PATRAC_LEVEL
