// Forward, likelihood and reverse of one tile after the other, back to back while its activations are in L1.
//
// The passes themselves are defined in tile_pass-inl.hpp, which one unit of a level includes for each element type.
// They are most of what a level compiles, and called from every kind of chain.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/tiles/contraction.hpp"
#include "cpu/tiles/last_hidden.hpp"
#include "cpu/tiles/likelihood.hpp"
#include "cpu/tiles/packed.hpp"
#include "cpu/tiles/row_variances.hpp"
#include "cpu/tiles/tile_workspace.hpp"
#include "cpu/tiles/totals.hpp"
#include "cpu/tiles/wide_outer.hpp"
#include "model/collapse.hpp"

namespace patrac::PATRAC_LEVEL {

// Weights and the workspace of one tile. One thread uses a pass at a time.
template <class T>
class TilePass {
public:
    using V = Vec<T>;

    // With `collapse`, moments() and evaluate_collapsed() may be called too; plan, layout and collapse outlive the
    // pass. It keeps the hidden activations of `held_tiles` tiles, all of the data, or with 1 of the last one alone.
    // `row_weights`: see TileWorkspace.
    TilePass(const Plan& plan, const TileLayout& layout, const CollapsePlan* collapse = nullptr,
             std::int64_t held_tiles = 1, const T* row_weights = nullptr);
    // The pass points into its own arrays, which moving leaves where they are.
    TilePass(TilePass&&) noexcept = default;

    // theta (K,) must stay as it is while tiles are passed over.
    void set_theta(const T* theta) {
        for (LayerWork<T>& work : work_.layers) {
            work.weights.set_theta(theta);
            work.biases.set_theta(theta);
        }
    }
    // Only the output layer's part of theta has changed.
    void set_output_theta(const T* theta) {
        work_.layers.back().weights.set_theta(theta);
        work_.layers.back().biases.set_theta(theta);
    }

    // Sums over tiles first_tile .. end_tile - 1 into totals, overwriting them.
    void evaluate(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood, std::int64_t first_tile,
                  std::int64_t end_tile, bool gradient, Totals& totals);

    // Number of values of a tile that moments() may save for evaluate_collapsed(), which then need not make them again;
    // 0 where it would save none.
    std::int64_t saved_size() const { return last_hidden_.serves_collapsed() ? last_hidden_.saved_size(work_) : 0; }

    // Sums over tiles first_tile .. end_tile - 1 into moments, overwriting them; theta's output weights are zero.
    // `wide`: sums within a tile are in float64 too, see CollapsedGroup::narrow_ratio. `saved` (n_tiles, saved_size())
    // or null.
    void moments(const PackedData<T>& data, std::int64_t first_tile, std::int64_t end_tile, bool wide, T* saved,
                 Moments& moments);

    // As evaluate(), at theta with the conditional mean as its output weights, for the gradient of the log marginal
    // likelihood: through `reverse_weights` (n_varying, m + P) the varying sources of the output layer read the m
    // derivatives and, up to source n_read - 1, the P weighted features. Null: no gradient. `hidden_done`: the pass
    // holds the hidden activations of these tiles already. `saved`: what moments() saved at the same theta_h, then
    // in place of them, or null.
    void evaluate_collapsed(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood, std::int64_t first_tile,
                            std::int64_t end_tile, const T* reverse_weights, std::int64_t n_read, bool hidden_done,
                            const T* saved, Totals& totals);

    // Of noise whose variance each row has for each output, e^s: as moments() and evaluate_collapsed(), see
    // cpu/tiles/row_variances-inl.hpp. limits (groups,): the largest root mean square of the rows' W, times the rows,
    // whose sums may be in T. factors (groups, P, P): F, F'F = S^(1/2) M^-1 S^(1/2), lower triangular in the features
    // of the group; null: no gradient.
    void moments_by_row(const PackedData<T>& data, std::int64_t first_tile, std::int64_t end_tile, const double* limits,
                        Moments& moments);
    void evaluate_collapsed_by_row(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood,
                                   std::int64_t first_tile, std::int64_t end_tile, const T* factors, bool hidden_done,
                                   Totals& totals);

    // Adds sum_r weight_r (y_r - f_r)^2 of each output over tiles first_tile .. end_tile - 1 to sums (m,).
    void add_squares(const PackedData<T>& data, std::int64_t first_tile, std::int64_t end_tile, double* sums);
    // f of tiles first_tile .. end_tile - 1, each to (m, stride) at its place among those of all tiles.
    void outputs(const PackedData<T>& data, std::int64_t first_tile, std::int64_t end_tile, T* out);

    // f (n, m) row-major at the rows of `data`.
    void predict(const PackedData<T>& data, T* f);

private:
    void begin_tile(const PackedData<T>& data, std::int64_t t, std::int64_t first_tile);
    template <class Zeta>
    void forward(std::size_t first_layer, std::size_t end_layer);
    // Before sums over the lanes of f: no infinity of another evaluation may be in them.
    void clear_tail_of_outputs();
    // Turns f of the tile into dl/df.
    double likelihood_of_tile(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood);
    // Turns f of the tile, o here, into W (y - o).
    void residuals_of_tile(const PackedData<T>& data);
    void weight_features();
    void moments_of_tile(const PackedData<T>& data, bool first, Moments& moments);
    void wide_moments_of_tile(const PackedData<T>& data, bool first, Moments& moments);
    // Turns the activations of a layer, from node `first` on, into dl/d(pre-activation); `transposed` gives
    // dl/d(activation) in their place.
    // `starts` are what the sums start from.
    template <class Zeta, class Starts>
    void reverse_into(LayerWork<T>& below, const Contraction<T>& transposed, std::int64_t first, const Starts& starts);
    // dl/d(pre-activation) below a collapsed output layer, whose value holds dl/df at the conditional mean: of the
    // nodes up to n_read, and of the others.
    template <class Zeta>
    void reverse_read(const T* weights, std::int64_t n_read);
    template <class Zeta>
    void reverse_unread(const T* weights, std::int64_t n_read);
    // From the output layer down: the gradient of a layer, then dl/d(pre-activation) below. `first` starts the sums.
    template <class Zeta>
    void reverse(bool first, Totals& totals);
    // From layer top - 1 down.
    template <class Zeta>
    void reverse(bool first, Totals& totals, std::size_t top);
    void add_gradient(std::size_t l, bool first, Totals& totals);
    void find_row_roots();
    bool fits_narrow(std::int64_t output, double limit) const;
    template <class X>
    void moments_of_output(const PackedData<T>& data, std::int64_t output, bool first, RootedRows<X>& rooted,
                           Moments& moments);
    void add_determinant_slopes(const T* factors);
    void factor_features(const CollapsedGroup& group, const T* factor, const T* root);
    void add_feature_slopes(const CollapsedGroup& group, const T* factor, const T* root, bool first);

    TileWorkspace<T> work_;
    LastHidden<T> last_hidden_;
    WideOuter<T> wide_outer_;
    // Of a collapsed output layer:
    AlignedArray<T> weighted_;  // (P, stride): features times row weights
    std::vector<const T*> weighted_rows_, output_rows_;
    AlignedArray<double> wide_;  // (P + m, stride): features and residuals times W^(1/2), once they are needed
    std::vector<const double*> wide_rows_;
    RowVariances<T> by_row_;
};

}  // namespace patrac::PATRAC_LEVEL
