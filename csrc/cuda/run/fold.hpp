// Folds the constants of a data set on its device, which evaluations read beside the inputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/model/data_set.hpp"
#include "cuda/run/device.hpp"

namespace patrac::PATRAC_LEVEL {

// Runs the fixed part of one data set's network over its inputs and writes constants and offsets to its tiles.
template <class T>
class Fold {
public:
    Fold(Device& device, const DataSet<T>& flat) : device_(device), flat_(flat) {
        for (const FixedMap& map : flat.fixed.offsets) offsets_.emplace_back(device, map);
        for (const FixedMap& map : flat.fixed.constants) constants_.emplace_back(device, map);
        for (const FixedMap& map : flat.fixed.companion) companion_.emplace_back(device, map);
        for (const PlanLayer& layer : flat.plan->layers) sources_.emplace_back(device, layer.constant_sources);
    }

    // To tiles (n_tiles, tile_size).
    void fill(const InputMatrix& inputs, T* tiles) const {
        const std::int64_t widest = widest_map();
        if (widest == 0) return;  // nothing is constant but the inputs
        // Rows are folded a few tiles at a time, so that the values between layers take little memory.
        constexpr std::int64_t max_values = 1 << 22;
        const std::int64_t together = std::clamp<std::int64_t>(max_values / widest / flat_.stride, 1, flat_.n_tiles);
        const std::int64_t rows = together * flat_.stride;
        Buffers buffers{rows, {}, DeviceVector<double>(device_, widest * rows)};
        for (std::size_t i = 0; i < (companion_.empty() ? 2 : 4); ++i)
            buffers.layers[i] = DeviceVector<double>(device_, widest * rows);
        for (std::int64_t t = 0; t < flat_.n_tiles; t += together) {
            const Stretch stretch{std::min(rows, flat_.n_rows - t * flat_.stride),
                                  std::min(together, flat_.n_tiles - t), tiles + t * flat_.tile_size};
            fill_stretch(inputs.from_row(t * flat_.stride), stretch, buffers);
        }
        device_.wait();  // the buffers are released next
    }

private:
    // A map in the device's memory.
    struct SentMap {
        DeviceVector<int> nodes;
        DeviceVector<double> weights, biases;
        int n_out, n_in;

        SentMap(Device& device, const FixedMap& map)
            : nodes(device, map.nodes),
              weights(device, map.weights),
              biases(device, map.biases),
              n_out(static_cast<int>(map.nodes.size())),
              n_in(static_cast<int>(map.n_in)) {}
    };
    // (nodes, pitch) in float64: of two layers in turn for the fixed part and two for the companion, and offsets.
    struct Buffers {
        std::int64_t pitch;
        DeviceVector<double> layers[4];
        DeviceVector<double> offsets;
    };
    struct Stretch {
        std::int64_t n_rows, n_tiles;
        T* tiles;
    };

    std::int64_t widest_map() const {
        std::int64_t widest = 0;
        for (const auto* maps : {&flat_.fixed.offsets, &flat_.fixed.constants, &flat_.fixed.companion})
            for (const FixedMap& map : *maps)
                for (const std::int32_t node : map.nodes) widest = std::max<std::int64_t>(widest, node + 1);
        return widest;
    }

    void fill_stretch(const InputMatrix& inputs, const Stretch& stretch, Buffers& buffers) const {
        InputMatrix companion{};
        for (std::size_t l = 0; l < companion_.size(); ++l) {
            const bool is_output = l + 1 == companion_.size();
            double* const out = buffers.layers[2 + l % 2].data();
            apply(companion_[l], l > 0 ? companion : inputs, {}, !is_output, flat_.fixed.companion_activation, stretch,
                  out, buffers.pitch);
            companion = by_node(out, buffers.pitch);
        }
        InputMatrix below = inputs;
        for (std::size_t l = 0; l < flat_.layers.size(); ++l) {
            const FlatLayer& layer = flat_.layers[l];
            const bool is_output = l + 1 == flat_.layers.size();
            if (l > 0) put(below, sources_[l], layer.n_constant, stretch, layer.constants);
            const InputMatrix offsets = by_node(buffers.offsets.data(), buffers.pitch);
            apply(offsets_[l], below, is_output ? companion : InputMatrix{}, false, flat_.activation, stretch,
                  buffers.offsets.data(), buffers.pitch);
            put(offsets, offsets_[l].nodes, offsets_[l].n_out, stretch, layer.offsets);
            if (is_output) break;
            double* const out = buffers.layers[l % 2].data();
            apply(constants_[l], below, {}, true, flat_.activation, stretch, out, buffers.pitch);
            below = by_node(out, buffers.pitch);
        }
    }

    static InputMatrix by_node(const double* values, std::int64_t pitch) {
        return {values, InputType::doubles, 1, pitch};
    }

    void apply(const SentMap& map, const InputMatrix& below, const InputMatrix& addend, bool activates,
               Activation activation, const Stretch& stretch, double* out, std::int64_t pitch) const {
        if (map.n_out == 0) return;
        device_.launch(AffineWork{below, stretch.n_rows, map.n_out, map.n_in, map.nodes.data(), map.weights.data(),
                                  map.biases.data(), addend, activates, activation, out, pitch});
    }

    // Columns of `values` to (columns, stride) from `place` on in each tile.
    void put(const InputMatrix& values, const DeviceVector<int>& columns, int n_columns, const Stretch& stretch,
             int place) const {
        if (n_columns == 0) return;
        device_.launch(tile_copy(values, stretch.n_rows, columns.data(), n_columns, flat_.stride, stretch.n_tiles,
                                 flat_.tile_size, stretch.tiles + place));
    }

    Device& device_;
    const DataSet<T>& flat_;
    std::vector<SentMap> offsets_, constants_, companion_;
    std::vector<DeviceVector<int>> sources_;
};

}  // namespace patrac::PATRAC_LEVEL
