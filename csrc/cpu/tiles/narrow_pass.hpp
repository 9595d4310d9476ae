// Specialised pass for small, fully Bayesian networks whose width is a compile-time constant.
//
// Where a layer is a few vectors of work, the general pass (tile_pass.hpp) spends half its time on set-up between
// layers. Here the compiler knows the width, and theta and the gradient are used in place: both are in layer order.
// What runs is defined in narrow_pass-inl.hpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/tiles/narrow_loop.hpp"
#include "cpu/tiles/packed.hpp"
#include "cpu/tiles/totals.hpp"
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

    // plan and data outlive the pass. `collapsed`: for moments() and evaluate_collapsed(), in place of evaluate().
    // `row_weights`: see TileWorkspace.
    NarrowPass(const Plan& plan, const PackedData<T>& data, bool collapsed = false, const T* row_weights = nullptr)
        : plan_(plan),
          data_(data),
          row_weights_(row_weights),
          zeros_(data.layout.stride),
          kept_size_((2 * (std::ssize(plan.layers) - 1) * width() + 1) * data.layout.stride),
          keeps_all_(collapsed && data.n_tiles * kept_size_ * std::int64_t{sizeof(T)} <= max_kept_bytes),
          kept_((keeps_all_ ? data.n_tiles : 1) * kept_size_),
          sums_(whole_vectors(std::max(plan.dim, n_moments())) * lanes),
          total_(whole_vectors(std::max(plan.dim, n_moments()))) {}

    // l without its constant, and g (K,) unless null.
    double evaluate(const T* theta, T precision, T* gradient);

    // As TilePass's over all tiles, at theta's hidden parameters.
    void moments(const T* theta, Moments& moments);
    // After moments() at the same hidden parameters, as TilePass's over all tiles: l without its constant at theta,
    // which holds the conditional mean as its output weights, and the gradient (K_h,) unless reverse_weights is null.
    double evaluate_collapsed(const T* theta, T precision, const T* reverse_weights, T* gradient);

private:
    static constexpr std::int64_t lanes = lanes_v<V>;
    // Activations of all tiles are kept from moments() to evaluate_collapsed() where they leave half of a second-level
    // cache of 512 KiB to the rest.
    static constexpr std::int64_t max_kept_bytes = 256 * 1024;

    static constexpr std::int64_t whole_vectors(std::int64_t count) { return (count + lanes - 1) / lanes * lanes; }
    std::int64_t width() const { return plan_.layers.front().n_rows(); }
    std::int64_t n_moments() const { return (width() + 1) * (width() + 4) / 2; }

    // f(loop) with the loop of the plan's width.
    template <int W = widest_narrow, class F>
    PATRAC_FN auto at_width(const F& f) const;
    template <class Loop>
    double evaluate_tiles(const Loop& loop, const T* theta, T precision, T* gradient);
    template <class Loop>
    void moments_of_tiles(const Loop& loop, const T* theta, Moments& moments);
    template <class Loop>
    double evaluate_collapsed_tiles(const Loop& loop, const T* theta, T precision, const T* reverse_weights,
                                    T* gradient);
    PATRAC_FN NarrowTile<T> tile(std::int64_t t) const;
    PATRAC_FN T* kept(std::int64_t t) { return kept_.data() + (keeps_all_ ? t * kept_size_ : 0); }
    // The first `count` sums. Those of a tile are in T, sums over tiles in float64.
    PATRAC_FN void add_sums(bool first, std::int64_t count);

    const Plan& plan_;
    const PackedData<T>& data_;
    const T* row_weights_;
    AlignedArray<T> zeros_;
    std::int64_t kept_size_;      // of a tile
    bool keeps_all_;              // whether each tile has a place of its own in kept_
    AlignedArray<T> kept_;        // see NarrowLoop::evaluate
    AlignedArray<T> sums_;        // up to whole vectors: the vectors whose sums over lanes are wanted, zero beyond
    AlignedArray<double> total_;  // the sums over tiles
};

}  // namespace patrac::PATRAC_LEVEL
