// Folds the constants of the data: runs the fixed part of the network once, in float64, and fills the tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cpu/tiles/packed.hpp"
#include "model/data_view.hpp"
#include "model/fixed_part.hpp"
#include "model/tile_layout.hpp"
#include "schedule/interruption.hpp"
#include "shared/activation.hpp"
#include "shared/likelihood.hpp"

namespace patrac::PATRAC_LEVEL {

// Input `column` of row `row`.
template <class T>
PATRAC_FN T input_of(const DataView<T>& data, std::int64_t row, std::int64_t column) {
    const std::int64_t at = row * data.row_step + column * data.column_step;
    return data.byte_inputs ? static_cast<T>(data.byte_inputs[at]) : data.inputs[at];
}

// Applies a map of the fixed part to rows side by side, `below` (n_in, stride) to `out` (nodes, stride), in float64.
void apply_map(const FixedMap& map, const double* below, double* out, std::int64_t stride, std::int64_t n_vectors,
               std::optional<Activation> activation);

// Runs the fixed part of a model over rows of data and fills their tiles.
class Packer {
public:
    Packer(const Plan& plan, const ModelSpec& spec) : plan_(plan), fixed_(FixedPart::make(plan, spec)) {}

    // Fills all tiles; `likelihood` says how targets are laid out, and is not read when data.targets is null.
    template <class T>
    void fill(const DataView<T>& data, LikelihoodKind likelihood, PackedData<T>& packed) const {
        if (PackedData<T>::can_stay(plan_, data)) {
            packed.inputs = data.inputs;
            packed.owner = data.owner;
            packed.input_step = data.column_step;
            packed.last_inputs = AlignedArray<T>(plan_.n_inputs * packed.layout.stride);
        }
        Workspace work(*this, padded(packed.layout.stride));
        for (std::int64_t t = 0; t < packed.n_tiles; ++t) {
            if (t % 64 == 63) Interruption::check();
            fill_tile(data, likelihood, packed, t, work);
        }
    }

private:
    // Buffers of one tile in float64, reused over tiles.
    struct Workspace {
        std::int64_t stride;
        AlignedArray<double> below, above, offset, companion_below, companion_above;

        Workspace(const Packer& packer, std::int64_t rows) : stride(rows) {
            const FixedPart& fixed = packer.fixed_;
            std::int64_t widest = packer.plan_.n_inputs, companion_widest = widest, max_offsets = 1;
            for (std::size_t l = 0; l < fixed.constants.size(); ++l)
                widest = std::max({widest, fixed.constants[l].n_in, fixed.offsets[l].n_in, packer.plan_.n_outputs});
            for (const FixedMap& map : fixed.companion)
                companion_widest = std::max(companion_widest, static_cast<std::int64_t>(map.nodes.size()));
            for (const FixedMap& map : fixed.offsets)
                max_offsets = std::max(max_offsets, static_cast<std::int64_t>(map.nodes.size()));
            below = AlignedArray<double>(widest * rows);
            above = AlignedArray<double>(widest * rows);
            offset = AlignedArray<double>(max_offsets * rows);
            if (fixed.companion.empty()) return;
            companion_below = AlignedArray<double>(companion_widest * rows);
            companion_above = AlignedArray<double>(companion_widest * rows);
        }
    };

    static std::int64_t padded(std::int64_t rows) {
        constexpr std::int64_t lanes = lanes_v<Vec<double>>;
        return (rows + lanes - 1) / lanes * lanes;
    }

    template <class T>
    void fill_tile(const DataView<T>& data, LikelihoodKind likelihood, PackedData<T>& packed, std::int64_t t,
                   Workspace& work) const {
        const std::int64_t first = t * packed.layout.stride;
        const std::int64_t rows = packed.rows_in_tile(t);
        const std::int64_t filled = packed.vectors_in_tile(t) * packed.lanes;  // real rows and the padding
        const std::int64_t vectors = padded(filled) / lanes_v<Vec<double>>;
        // Padding repeats the last row, so it is finite whenever the data's rows are.
        const auto source_row = [&](std::int64_t r) { return first + std::min(r, rows - 1); };
        T* const tile = packed.tile(t);
        const std::int64_t stride = packed.layout.stride;

        for (std::int64_t r = 0; r < padded(filled); ++r)
            for (std::int64_t j = 0; j < plan_.n_inputs; ++j)
                work.below[j * work.stride + r] = static_cast<double>(input_of(data, source_row(r), j));
        const double* companion_output = run_companion(work, vectors);

        for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
            const PlanLayer& layer = plan_.layers[l];
            const bool is_output = l + 1 == plan_.layers.size();
            const bool stay = l == 0 && packed.inputs;
            T* const constants = stay ? packed.last_inputs.data() : tile + packed.layout.constants[l];
            const std::int64_t n_constant = stay && t + 1 < packed.n_tiles ? 0 : layer.n_constant();
            for (std::int64_t s = 0; s < n_constant; ++s) {
                const double* value =
                    work.below.data() + layer.constant_sources[static_cast<std::size_t>(s)] * work.stride;
                std::transform(value, value + filled, constants + s * stride,
                               [](double x) { return static_cast<T>(x); });
            }
            apply_map(fixed_.offsets[l], work.below.data(), work.offset.data(), work.stride, vectors, std::nullopt);
            T* const offsets = tile + packed.layout.offsets[l];
            for (std::size_t o = 0; o < layer.offset_rows.size(); ++o) {
                const std::int64_t node = fixed_.offsets[l].nodes[o];
                for (std::int64_t r = 0; r < filled; ++r) {
                    double value = work.offset[static_cast<std::int64_t>(o) * work.stride + r];
                    if (is_output && companion_output) value += companion_output[node * work.stride + r];
                    offsets[static_cast<std::int64_t>(o) * stride + r] = static_cast<T>(value);
                }
            }
            if (is_output) break;
            // Stores the constant nodes; the entry of a varying node is read with weight zero, so it must be finite.
            const FixedMap& constant_nodes = fixed_.constants[l];
            apply_map(constant_nodes, work.below.data(), work.above.data(), work.stride, vectors, plan_.activation);
            std::fill_n(work.below.data(), work.below.size(), 0.0);
            for (std::size_t c = 0; c < constant_nodes.nodes.size(); ++c)
                std::copy_n(work.above.data() + static_cast<std::int64_t>(c) * work.stride, filled,
                            work.below.data() + constant_nodes.nodes[c] * work.stride);
        }

        if (data.targets)
            fill_targets(data, targets_per_row(likelihood, plan_.n_outputs), packed.layout, first, rows, filled, tile);
    }

    // The companion's output (m, stride) at the inputs in work.below, or null.
    const double* run_companion(Workspace& work, std::int64_t vectors) const {
        const std::vector<FixedMap>& maps = fixed_.companion;
        if (maps.empty()) return nullptr;
        std::copy_n(work.below.data(), plan_.n_inputs * work.stride, work.companion_below.data());
        for (std::size_t l = 0; l < maps.size(); ++l) {
            const bool is_output = l + 1 == maps.size();
            apply_map(maps[l], work.companion_below.data(), work.companion_above.data(), work.stride, vectors,
                      is_output ? std::nullopt : std::optional(fixed_.companion_activation));
            std::swap(work.companion_below, work.companion_above);
        }
        return work.companion_below.data();
    }

    const Plan& plan_;  // outlives the packer
    FixedPart fixed_;
};

}  // namespace patrac::PATRAC_LEVEL
