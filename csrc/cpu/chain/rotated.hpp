// A target in other coordinates: its whitened parameters, rotated block by block (docs/method.md, section 6).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "cpu/chain/concepts.hpp"
#include "cpu/chain/state.hpp"
#include "schedule/checkpoint.hpp"
#include "schedule/run_config.hpp"

namespace patrac::PATRAC_LEVEL {

// out (columns,) = sum_j coefficient[j] matrix[j], whose rows are `stride` apart and end in zeros, as out does.
template <class T>
void combine_rows(const T* coefficient, const AlignedArray<T>& matrix, std::int64_t count, std::int64_t stride,
                  T* out) {
    using V = Vec<T>;
    constexpr std::int64_t lanes = lanes_v<V>, at_once = 4;
    std::int64_t first = 0;
    // Several independent sums at a time: a single one would be a chain of dependent operations.
    for (; first + at_once * lanes <= stride; first += at_once * lanes) {
        V sum[at_once] = {};
        for (std::int64_t j = 0; j < count; ++j) {
            const V c = broadcast<V>(coefficient[j]);
            const T* const row = matrix.data() + j * stride + first;
            for (std::int64_t k = 0; k < at_once; ++k) sum[k] = fma(c, load<V>(row + k * lanes), sum[k]);
        }
        for (std::int64_t k = 0; k < at_once; ++k) store<V>(out + first + k * lanes, sum[k]);
    }
    for (; first < stride; first += lanes) {
        V sum = {};
        for (std::int64_t j = 0; j < count; ++j)
            sum = fma(broadcast<V>(coefficient[j]), load<V>(matrix.data() + j * stride + first), sum);
        store<V>(out + first, sum);
    }
}

// An orthogonal map of dim coordinates. Each block is a matrix X (rows, columns), row by row, which becomes A X B'.
template <class T>
class BlockRotation {
public:
    explicit BlockRotation(const std::vector<RotationBlock>& blocks) {
        std::int64_t largest = 0, longest = 0;
        for (const RotationBlock& block : blocks) {
            parts_.emplace_back(block);
            longest = std::max(longest, parts_.back().stride);
            largest = std::max(largest, block.rows * parts_.back().stride);
        }
        half_ = AlignedArray<T>(largest);
        row_ = AlignedArray<T>(longest);
    }

    // z = R x; x and z (dim,) may be one array.
    void apply(const T* x, T* z) { map(x, z, &Part::rows_forward, &Part::columns_forward); }
    // x = R'z.
    void undo(const T* z, T* x) { map(z, x, &Part::rows_back, &Part::columns_back); }

private:
    struct Part {
        std::int64_t first, rows, columns, stride;      // stride of rows of `columns` values in whole vectors
        AlignedArray<T> rows_forward, rows_back;        // A and A', (rows, rows)
        AlignedArray<T> columns_forward, columns_back;  // B' and B, (columns, stride)

        explicit Part(const RotationBlock& block)
            : first(block.first),
              rows(block.rows),
              columns(block.columns),
              stride((columns + lanes_v<Vec<T>> - 1) / lanes_v<Vec<T>> * lanes_v<Vec<T>>),
              rows_forward(rows * rows),
              rows_back(rows * rows),
              columns_forward(columns * stride),
              columns_back(columns * stride) {
            for (std::int64_t i = 0; i < rows; ++i)
                for (std::int64_t k = 0; k < rows; ++k)
                    rows_forward[i * rows + k] = rows_back[k * rows + i] = static_cast<T>(block.row_axes[i * rows + k]);
            for (std::int64_t i = 0; i < columns; ++i)
                for (std::int64_t k = 0; k < columns; ++k)
                    columns_back[i * stride + k] = columns_forward[k * stride + i] =
                        static_cast<T>(block.column_axes[i * columns + k]);
        }
    };
    using Factor = AlignedArray<T> Part::*;

    void map(const T* from, T* to, Factor row_factor, Factor column_factor) {
        for (const Part& part : parts_) {
            const AlignedArray<T>& of_rows = part.*row_factor;
            for (std::int64_t i = 0; i < part.rows; ++i)
                combine_rows(from + part.first + i * part.columns, part.*column_factor, part.columns, part.stride,
                             half_.data() + i * part.stride);
            for (std::int64_t i = 0; i < part.rows; ++i) {
                combine_rows(of_rows.data() + i * part.rows, half_, part.rows, part.stride, row_.data());
                std::copy_n(row_.data(), part.columns, to + part.first + i * part.columns);
            }
        }
    }

    std::vector<Part> parts_;
    AlignedArray<T> half_, row_;  // a block after one factor; a row after both
};

// theta = C^(1/2) R x: x is a priori N(0, I) whatever the rotation R is, or N(0, scale_g) where the prior's scales are
// sampled, each block being of one group. Kernels then step in x, with a step size for each coordinate; kept draws are
// of theta.
template <class T, class Inner>
class RotatedTarget {
public:
    struct Kept {
        StateOf<T, Inner> inner;  // the same point in theta

        friend void exchange_kept(Checkpoint& saved, Kept& kept) { exchange_state(saved, kept.inner); }
    };
    static constexpr std::int64_t side_by_side = Inner::side_by_side;
    static constexpr bool follows_prior = Inner::follows_prior;

    // prior_variance (full_dim,): C, that of all scales at 1.
    RotatedTarget(Inner target, const std::vector<RotationBlock>& blocks, const double* prior_variance)
        : target_(std::move(target)),
          rotation_(blocks),
          deviation_(target_.dim()),
          scale_(static_cast<std::size_t>(target_.dim())),
          scratch_(target_.dim()) {
        const double* const own = target_.prior_variance(prior_variance);
        base_.assign(own, own + dim());
        for (std::int64_t i = 0; i < dim(); ++i) deviation_[i] = static_cast<T>(std::sqrt(own[i]));
    }

    std::int64_t dim() const { return target_.dim(); }
    std::int64_t full_dim() const { return target_.full_dim(); }
    std::int64_t output_normals() const { return target_.output_normals(); }
    bool draws_by_row() const { return target_.draws_by_row(); }
    GaussianTerms terms() const { return target_.terms(); }
    const double* prior_variance(const double* given) const {
        const double* const own = target_.prior_variance(given);
        for (std::size_t i = 0; i < scale_.size(); ++i) scale_[i] = own[i] / base_[i];
        return scale_.data();
    }
    Kept make_kept() const { return {StateOf<T, Inner>(target_.dim(), target_.make_kept())}; }
    const T* theta_of(const State<T, Kept>& state) const { return target_.theta_of(state.kept.inner); }

    void place(const T* theta, State<T, Kept>& state) {
        target_.place(theta, state.kept.inner);
        const T* const own = target_.theta_of(state.kept.inner);
        for (std::int64_t i = 0; i < dim(); ++i) scratch_[i] = own[i] / deviation_[i];
        rotation_.undo(scratch_.data(), state.theta.data());
    }

    void evaluate(State<T, Kept>& state, bool gradient) {
        StateOf<T, Inner>& inner = state.kept.inner;
        rotation_.apply(state.theta.data(), inner.theta.data());
        for (std::int64_t i = 0; i < dim(); ++i) inner.theta[i] *= deviation_[i];
        target_.evaluate(inner, gradient);
        take_value(state, gradient);
    }

    double complete(const State<T, Kept>& state, const T* w, T* theta) {
        return target_.complete(state.kept.inner, w, theta);
    }
    void sum_of_squares(const State<T, Kept>& state, const T* theta, double* squares) {
        target_.sum_of_squares(state.kept.inner, theta, squares);
    }
    template <class... Arguments>
    void draw_variances(Arguments&&... arguments)
        requires requires(Inner& target) { target.draw_variances(arguments...); }
    {
        target_.draw_variances(arguments...);
    }
    void restore_precisions()
        requires MixtureTarget<Inner, T>
    {
        target_.restore_precisions();
    }
    double mixture_log_likelihood(const T* theta)
        requires MixtureTarget<Inner, T>
    {
        return target_.mixture_log_likelihood(theta);
    }
    void exchange(Checkpoint& saved)
        requires MixtureTarget<Inner, T>
    {
        target_.exchange(saved);
    }

    void set_variance(State<T, Kept>& state, const std::vector<double>& variance, bool gradient) {
        StateOf<T, Inner>& inner = state.kept.inner;
        target_.set_variance(inner, variance, gradient);
        take_value(state, gradient);
        // As in Chain::draw_variance(): what is not finite cannot be scaled back.
        if (!is_finite(inner)) set_zero(inner.gradient);
    }

    void set_prior_variance(State<T, Kept>& state, const double* prior_variance, bool gradient) {
        target_.set_prior_variance(state.kept.inner, prior_variance, gradient);
        take_value(state, gradient);
    }

private:
    // l and its gradient in x, R'C^(1/2) g.
    void take_value(State<T, Kept>& state, bool gradient) {
        const StateOf<T, Inner>& inner = state.kept.inner;
        state.log_likelihood = inner.log_likelihood;
        if (!gradient) return;
        for (std::int64_t i = 0; i < dim(); ++i) scratch_[i] = deviation_[i] * inner.gradient[i];
        rotation_.undo(scratch_.data(), state.gradient.data());
    }

    Inner target_;
    BlockRotation<T> rotation_;
    AlignedArray<T> deviation_;          // C^(1/2)
    mutable std::vector<double> scale_;  // (dim,), the prior variances of x
    std::vector<double> base_;           // (dim,), C
    AlignedArray<T> scratch_;
};

}  // namespace patrac::PATRAC_LEVEL
