// A network of a few nodes a layer, all of it Bayesian, without what a layer of any width needs.
//
// Where a layer is a few vectors of work, half the time of the general pass (tile_pass.hpp) is set-up from layer to
// layer. Here the width is known to the compiler, and theta is read and the gradient written where they are: the order
// of both is that of the layers.
#pragma once

#include <cstdint>

#include "cpu/tiles/narrow_loop.hpp"
#include "cpu/tiles/packed.hpp"
#include "cpu/tiles/wide.hpp"
#include "shared/activation.hpp"
#include "shared/lane_sums.hpp"

namespace patrac::PATRAC_LEVEL {

// Nodes in each hidden layer, at most.
inline constexpr int widest_narrow = 5;

// Log-likelihood and gradient over all tiles of a model that serves() allows.
template <class T>
class NarrowPass {
public:
    using V = Vec<T>;

    // Whether the plan is a tanh network of equal narrow hidden layers and one output, every parameter Bayesian.
    static bool serves(const Plan& plan) {
        if (plan.activation != Activation::tanh || plan.n_outputs != 1 || plan.layers.size() < 2) return false;
        const std::int64_t width = plan.layers.front().n_rows();
        if (width > widest_narrow || plan.layers.front().n_constant() != plan.n_inputs) return false;
        std::int64_t dim = 0;
        for (std::size_t l = 0; l < plan.layers.size(); ++l) {
            const PlanLayer& layer = plan.layers[l];
            const bool is_output = l + 1 == plan.layers.size();
            if (layer.n_rows() != (is_output ? 1 : width) || (l > 0 && layer.n_constant() != 0)) return false;
            if (!is_output && !layer.offset_rows.empty()) return false;  // fixed nodes, read through fixed weights
            dim += layer.n_rows() * (layer.n_sources() + 1);
        }
        return plan.dim == dim;
    }

    // plan and data outlive the pass.
    NarrowPass(const Plan& plan, const PackedData<T>& data)
        : plan_(plan),
          data_(data),
          zeros_(data.layout.stride),
          kept_((2 * (std::ssize(plan.layers) - 1) * plan.layers.front().n_rows() + 1) * data.layout.stride),
          sums_((plan.dim + lanes - 1) / lanes * lanes * lanes),
          total_((plan.dim + lanes - 1) / lanes * lanes) {}

    // l without its constant, and g (K,) unless null.
    [[gnu::noinline]] double evaluate(const T* theta, T precision, T* gradient) {
        return evaluate_width<widest_narrow>(theta, precision, gradient);
    }

private:
    static constexpr std::int64_t lanes = lanes_v<V>;

    template <int W>
    PATRAC_FN double evaluate_width(const T* theta, T precision, T* gradient) {
        if constexpr (W > 1)
            if (plan_.layers.front().n_rows() < W) return evaluate_width<W - 1>(theta, precision, gradient);
        return evaluate_tiles(NarrowLoop<T, W, Tanh>(plan_.n_inputs, std::ssize(plan_.layers) - 1), theta, precision,
                              gradient);
    }

    template <class Loop>
    [[gnu::noinline]] double evaluate_tiles(const Loop& loop, const T* theta, T precision, T* gradient) {
        V* const sums = gradient ? reinterpret_cast<V*>(sums_.data()) : nullptr;
        const bool has_offset = !plan_.layers.back().offset_rows.empty();
        double log_likelihood = 0.0;
        for (std::int64_t t = 0; t < data_.n_tiles; ++t) {
            const T* const tile = data_.tile(t);
            const TileItems<T> inputs = data_.constants(0, t);
            const T* const offset = has_offset ? tile + data_.layout.offsets.back() : zeros_.data();
            log_likelihood += loop.evaluate({inputs.base, inputs.step, offset, tile + data_.layout.targets,
                                             tile + data_.layout.row_weights, data_.vectors_in_tile(t)},
                                            theta, precision, kept_.data(), sums);
            if (gradient) add_sums(t == 0, sums);
        }
        if (gradient) narrow(total_.data(), plan_.dim, gradient);
        return log_likelihood;
    }

    // Sums of a tile are in T, sums over tiles in float64.
    PATRAC_FN void add_sums(bool first, const V* sums) {
        using D = Vec<double>;
        for (std::int64_t i = 0; i < plan_.dim; i += lanes) {
            T of_tile[lanes];
            store<V>(of_tile, lane_sums(sums + i));
            for (std::int64_t j = 0; j < lanes; j += lanes_v<D>) {
                double* const total = total_.data() + i + j;
                const D before = first ? D{} : load<D>(total);
                store<D>(total, load_wide(of_tile + j) + before);
            }
        }
    }

    const Plan& plan_;
    const PackedData<T>& data_;
    AlignedArray<T> zeros_;
    AlignedArray<T> kept_;        // see NarrowLoop::evaluate
    AlignedArray<T> sums_;        // (K up to whole vectors,) vectors, zero beyond K
    AlignedArray<double> total_;  // (K up to whole vectors,)
};

}  // namespace patrac::PATRAC_LEVEL
