// Specialised pass for small, fully Bayesian networks whose width is a compile-time constant.
//
// Where a layer is a few vectors of work, the general pass (tile_pass.hpp) spends half its time on set-up between
// layers. Here the compiler knows the width, and theta and the gradient are used in place: both are in layer order.
// What runs is defined in narrow_pass-inl.hpp.
#pragma once

#include <cstdint>

#include "cpu/tiles/packed.hpp"
#include "shared/activation.hpp"

namespace patrac::PATRAC_LEVEL {

// Largest number of nodes in a hidden layer.
inline constexpr int widest_narrow = 5;

// Log-likelihood and gradient over all tiles of a model that supports() allows.
template <class T>
class NarrowPass {
public:
    using V = Vec<T>;

    // Whether the plan is a tanh network of equal narrow hidden layers and one output, every parameter Bayesian.
    static bool supports(const Plan& plan) {
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
    double evaluate(const T* theta, T precision, T* gradient);

private:
    static constexpr std::int64_t lanes = lanes_v<V>;

    template <int W>
    PATRAC_FN double evaluate_width(const T* theta, T precision, T* gradient);
    template <class Loop>
    double evaluate_tiles(const Loop& loop, const T* theta, T precision, T* gradient);
    // Sums of a tile are in T, sums over tiles in float64.
    PATRAC_FN void add_sums(bool first, const V* sums);

    const Plan& plan_;
    const PackedData<T>& data_;
    AlignedArray<T> zeros_;
    AlignedArray<T> kept_;        // see NarrowLoop::evaluate
    AlignedArray<T> sums_;        // (K up to whole vectors,) vectors, zero beyond K
    AlignedArray<double> total_;  // (K up to whole vectors,)
};

}  // namespace patrac::PATRAC_LEVEL
