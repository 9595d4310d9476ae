// Targets (cpu/chain/concepts.hpp): log-likelihood and gradient from tiles of data or from a quadratic form.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/chain/inverse_gamma.hpp"
#include "cpu/chain/state.hpp"
#include "cpu/tiles/evaluator.hpp"
#include "cpu/tiles/packed.hpp"
#include "cpu/tiles/wide.hpp"
#include "model/quadratic.hpp"

namespace patrac::PATRAC_LEVEL {

// Base of targets whose states are complete draws.
template <class T>
class PlainTarget {
public:
    using Kept = Nothing;
    static constexpr std::int64_t side_by_side = 1;
    static constexpr bool follows_prior = true;

    bool draws_by_row() const { return false; }

    PlainTarget(std::int64_t dim, double terms, const std::vector<double>& variance)
        : dim_(dim), terms_{terms}, variance_(variance) {}

    Kept make_kept() const { return {}; }
    std::int64_t dim() const { return dim_; }
    std::int64_t full_dim() const { return dim_; }
    std::int64_t output_normals() const { return 0; }
    const GaussianTerms& terms() const { return terms_; }
    const double* prior_variance(const double* given) const { return given; }
    void set_prior_variance(State<T, Kept>&, const double*, bool) const {}  // l and g at theta hold none of them

    void place(const T* theta, State<T, Kept>& state) const { std::copy_n(theta, dim_, state.theta.data()); }
    const T* theta_of(const State<T, Kept>& state) const { return state.theta.data(); }

    double complete(const State<T, Kept>& state, const T*, T* theta) const {
        std::copy_n(state.theta.data(), dim_, theta);
        return state.log_likelihood;
    }

protected:
    // Rescales l and g of the state to another variance of all outputs: both are proportional to 1 / variance, up to
    // the constant of l.
    void rescale(State<T, Kept>& state, const std::vector<double>& variance) {
        const double from = variance_.front(), to = variance.front();
        state.log_likelihood = terms_.rescaled(state.log_likelihood, from, to);
        const Vec<double> factor = broadcast<Vec<double>>(from / to);
        for (std::int64_t i = 0; i < dim_; i += lanes_v<Vec<double>>)
            store_narrow(state.gradient.data() + i, factor * load_wide(state.gradient.data() + i));
    }

    std::int64_t dim_;
    GaussianTerms terms_;
    std::vector<double> variance_;  // (q,) of the noise, where it is sampled
};

// Any model: every evaluation passes over the data.
template <class T>
class TileTarget : public PlainTarget<T> {
public:
    // `threads` of them share an evaluation. `variance` is read where it is sampled.
    TileTarget(const Plan& plan, const PackedData<T>& data, const LikelihoodTerms<T>& likelihood,
               const std::vector<double>& variance, std::int64_t threads)
        : PlainTarget<T>(plan.dim, likelihood.terms, variance),
          likelihood_(likelihood),
          evaluator_(plan, data, threads) {}

    void evaluate(State<T, Nothing>& state, bool gradient) {
        state.log_likelihood =
            evaluator_.evaluate(state.theta.data(), likelihood_, gradient ? state.gradient.data() : nullptr);
    }
    void sum_of_squares(const State<T, Nothing>&, const T* theta, double* squares) {
        evaluator_.sum_of_squares(theta, squares);
    }

    bool draws_by_row() const { return likelihood_.draws_by_row(); }
    void draw_variances(const T* theta, VarianceStreams& streams, double shape, const double* rate,
                        std::vector<double>& drawn) {
        const OutputRows<T>& rows = evaluator_.outputs(theta);
        const double terms = this->terms_.terms / static_cast<double>(drawn.size());
        likelihood_.of_scales([&](const auto& own, std::size_t c) {
            drawn[c] = own.draw(rows.of(c), this->variance_[c], terms, shape, rate[c], streams);
        });
    }

    // l and g mix outputs, so that with a variance for each they are computed again.
    void set_variance(State<T, Nothing>& state, const std::vector<double>& variance, bool gradient) {
        likelihood_.set_variance(variance);
        if (variance.size() == 1 && !draws_by_row())
            this->rescale(state, variance);
        else
            evaluate(state, gradient);
        this->variance_ = variance;
    }

private:
    LikelihoodTerms<T> likelihood_;
    Evaluator<T> evaluator_;
};

// A Gaussian likelihood of the last layer alone (docs/method.md, section 6): l(x) = constant + slope . x - x' B x / 2,
// each term of which scales with the noise variance of its output as PlainTarget's l does.
template <class T>
class FormTarget : public PlainTarget<T> {
public:
    static constexpr std::int64_t side_by_side = 4;

    explicit FormTarget(const Quadratic& form)
        : PlainTarget<T>(std::ssize(form.slope), form.terms, form.variance),
          form_variance_(form.variance),
          form_constant_(form.constant),
          output_(form.output),
          scale_of_output_(form.constant.size(), 1.0),
          slope_(this->dim_),
          scale_(this->dim_) {
        for (const double constant : form.constant) constant_ += constant;
        std::copy(form.slope.begin(), form.slope.end(), slope_.data());
        std::fill_n(scale_.data(), this->dim_, 1.0);
    }

    void set_variance(State<T, Nothing>& state, const std::vector<double>& variance, bool) {
        const GaussianTerms each{this->terms_.terms / static_cast<double>(variance.size())};
        constant_ = 0.0;
        for (std::size_t c = 0; c < variance.size(); ++c) {
            scale_of_output_[c] = form_variance_[c] / variance[c];
            constant_ += each.rescaled(form_constant_[c], form_variance_[c], variance[c]);
        }
        for (std::int64_t i = 0; i < this->dim_; ++i) scale_[i] = scale_of_output_[output_of(i)];
        ++revision_;
        if (variance.size() == 1) this->rescale(state, variance);
        this->variance_ = variance;
    }

protected:
    std::size_t output_of(std::int64_t i) const {
        return scale_of_output_.size() == 1 ? 0 : static_cast<std::size_t>(output_[static_cast<std::size_t>(i)]);
    }

    // l and g of the state from bend(i), lanes i.. of B x at form_variance_.
    template <class Bend>
    void evaluate_with(State<T, Nothing>& state, bool gradient, const Bend& bend) const {
        using D = Vec<double>;
        const bool apart = scale_of_output_.size() > 1;
        D total = {};
        for (std::int64_t i = 0; i < this->dim_; i += lanes_v<D>) {
            const D at = load_wide(state.theta.data() + i), slope = load<D>(slope_.data() + i), bent = bend(i, at);
            const D scale = load<D>(scale_.data() + i), half = slope - broadcast<D>(0.5) * bent;
            total = fma(at, apart ? scale * half : half, total);
            if (gradient) store_narrow(state.gradient.data() + i, scale * (slope - bent));
        }
        state.log_likelihood = constant_ + (apart ? 1.0 : scale_of_output_.front()) * reduce_add(total);
    }

    // The sums of squared residuals, (q,), from bend(i), entry i of B x at form_variance_.
    template <class Bend>
    void sum_of_squares_with(const State<T, Nothing>& state, double* squares, const Bend& bend) const {
        const std::size_t q = scale_of_output_.size();
        std::copy(form_constant_.begin(), form_constant_.end(), squares);
        for (std::int64_t i = 0; i < this->dim_; ++i)
            squares[output_of(i)] += static_cast<double>(state.theta[i]) * (slope_[i] - 0.5 * bend(i));
        const GaussianTerms each{this->terms_.terms / static_cast<double>(q)};
        for (std::size_t c = 0; c < q; ++c) squares[c] = each.sum_of_squares(squares[c], form_variance_[c]);
    }

    std::vector<double> form_variance_, form_constant_;  // (q,), that slope and B are for, and l at zero there
    std::vector<std::int32_t> output_;                   // (K,), see Quadratic
    std::vector<double> scale_of_output_;                // (q,): form_variance_ over the current variance
    double constant_ = 0.0;                              // at the current variances
    std::int64_t revision_ = 0;                          // counts changes of the variances
    AlignedArray<double> slope_, scale_;                 // (K,); scale_ that of each coordinate's output
};

// B diagonal and the prior N(0, I), in the whitened eigenbasis: a step is O(K) whatever n is, a kept draw O(K^2).
template <class T>
class DiagonalTarget : public FormTarget<T> {
public:
    static constexpr bool follows_prior = false;

    explicit DiagonalTarget(const Quadratic& form)
        : FormTarget<T>(form),
          row_((this->dim_ + stripe - 1) / stripe * stripe),
          ones_(this->dim_),
          to_theta_((this->dim_ + streams - 1) / streams * streams * row_),
          drawn_(row_),
          curvature_(this->dim_),
          mean_(this->dim_),
          deviation_(this->dim_) {
        std::copy(form.matrix.begin(), form.matrix.end(), curvature_.data());
        std::fill_n(ones_.data(), this->dim_, 1.0);
        for (std::int64_t i = 0; i < this->dim_; ++i)
            for (std::int64_t j = 0; j < this->dim_; ++j)
                to_theta_[j * row_ + i] = static_cast<T>(form.to_theta[static_cast<std::size_t>(i * this->dim_ + j)]);
        find_conditional();
    }

    void evaluate(State<T, Nothing>& state, bool gradient) const {
        this->evaluate_with(state, gradient, [this](std::int64_t i, Vec<double> at) __attribute__((always_inline)) {
            return load<Vec<double>>(curvature_.data() + i) * at;
        });
    }

    void sum_of_squares(const State<T, Nothing>& state, const T*, double* squares) const {
        this->sum_of_squares_with(state, squares,
                                  [&](std::int64_t i) { return curvature_[i] * static_cast<double>(state.theta[i]); });
    }

    const double* prior_variance(const double*) const { return ones_.data(); }

    // l(x) = constant + sum_i scale_i (slope_i x_i - curvature_i x_i^2 / 2); the scales stay until the revision
    // changes.
    std::int64_t revision() const { return this->revision_; }
    const AlignedArray<double>& scale() const { return this->scale_; }
    const AlignedArray<double>& slope() const { return this->slope_; }
    const AlignedArray<double>& curvature() const { return curvature_; }

    // theta = to_theta z, in the chain's type: each sum has a few dozen terms, and no acceptance ratio depends on it.
    double complete(const State<T, Nothing>& state, const T*, T* theta) {
        using V = Vec<T>;
        for (std::int64_t i = 0; i < row_; i += stripe) {
            // Four independent partial sums: a single one would be a chain of dependent operations.
            V sum[streams][columns] = {};
            for (std::int64_t j = 0; j < this->dim_; j += streams)
                for (int t = 0; t < streams; ++t) {
                    const V z = broadcast<V>(state.theta[j + t]);
                    const T* const column = to_theta_.data() + (j + t) * row_ + i;
                    for (int k = 0; k < columns; ++k) sum[t][k] = fma(z, load<V>(column + k * lanes_v<V>), sum[t][k]);
                }
            for (int k = 0; k < columns; ++k)
                store<V>(drawn_.data() + i + k * lanes_v<V>, (sum[0][k] + sum[1][k]) + (sum[2][k] + sum[3][k]));
        }
        std::copy_n(drawn_.data(), this->dim_, theta);
        return state.log_likelihood;
    }

    // An independent draw: z_i ~ N(slope_i / (1 + curvature_i), 1 / (1 + curvature_i)).
    void draw(State<T, Nothing>& state, const T* w) const {
        using V = Vec<T>;
        for (std::int64_t i = 0; i < this->dim_; i += lanes_v<V>)
            store<V>(state.theta.data() + i,
                     fma(load<V>(deviation_.data() + i), load<V>(w + i), load<V>(mean_.data() + i)));
        evaluate(state, false);
    }

    void set_variance(State<T, Nothing>& state, const std::vector<double>& variance, bool gradient) {
        FormTarget<T>::set_variance(state, variance, gradient);
        if (variance.size() > 1) evaluate(state, gradient);
        find_conditional();
    }

private:
    void find_conditional() {
        for (std::int64_t i = 0; i < this->dim_; ++i) {
            const double scale = this->scale_[i], variance = 1.0 / (1.0 + scale * curvature_[i]);
            mean_[i] = static_cast<T>(scale * this->slope_[i] * variance);
            deviation_[i] = static_cast<T>(std::sqrt(variance));
        }
    }

    // Vectors of theta and coordinates of z that run side by side in complete().
    static constexpr int columns = 3, streams = 4;
    static constexpr std::int64_t stripe = columns * lanes_v<Vec<T>>;

    std::int64_t row_;  // of to_theta_
    AlignedArray<double> ones_;
    AlignedArray<T> to_theta_;  // transposed: (K, row_), and rows of zeros up to whole streams
    AlignedArray<T> drawn_;     // (row_,)
    AlignedArray<double> curvature_;
    AlignedArray<T> mean_, deviation_;
};

// In theta's own coordinates, for kernels that a rotation would change: O(K^2) a step.
template <class T>
class DenseTarget : public FormTarget<T> {
public:
    explicit DenseTarget(const Quadratic& form)
        : FormTarget<T>(form), row_(padded(this->dim_)), matrix_(this->dim_ * row_), bend_(row_) {
        for (std::int64_t i = 0; i < this->dim_; ++i)
            std::copy_n(form.matrix.data() + i * this->dim_, this->dim_, matrix_.data() + i * row_);
    }

    void evaluate(State<T, Nothing>& state, bool gradient) {
        find_bend(state);
        this->evaluate_with(state, gradient, [this](std::int64_t i, Vec<double>) __attribute__((always_inline)) {
            return load<Vec<double>>(bend_.data() + i);
        });
    }

    void sum_of_squares(const State<T, Nothing>& state, const T*, double* squares) {
        find_bend(state);
        this->sum_of_squares_with(state, squares, [this](std::int64_t i) { return bend_[i]; });
    }

    void set_variance(State<T, Nothing>& state, const std::vector<double>& variance, bool gradient) {
        FormTarget<T>::set_variance(state, variance, gradient);
        if (variance.size() > 1) evaluate(state, gradient);
    }

private:
    void find_bend(const State<T, Nothing>& state) {
        using D = Vec<double>;
        for (std::int64_t j = 0; j < row_; j += lanes_v<D>) {
            D sum = {};
            for (std::int64_t i = 0; i < this->dim_; ++i)
                sum =
                    fma(broadcast<D>(static_cast<double>(state.theta[i])), load<D>(matrix_.data() + i * row_ + j), sum);
            store<D>(bend_.data() + j, sum);
        }
    }

    static std::int64_t padded(std::int64_t dim) {
        constexpr std::int64_t lanes = lanes_v<Vec<double>>;
        return (dim + lanes - 1) / lanes * lanes;
    }

    std::int64_t row_;  // of matrix_, whole vectors
    AlignedArray<double> matrix_, bend_;
};

}  // namespace patrac::PATRAC_LEVEL
