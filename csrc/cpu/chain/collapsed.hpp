// A model of Gaussian noise, or of noise that is normal given a precision of each row, with the Bayesian output weights
// of its means integrated out (docs/method.md, section 6).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "cpu/chain/cholesky.hpp"
#include "cpu/chain/inverse_gamma.hpp"
#include "cpu/chain/narrow_conditional.hpp"
#include "cpu/chain/state.hpp"
#include "cpu/tiles/evaluator.hpp"
#include "model/collapse.hpp"

namespace patrac::PATRAC_LEVEL {

// Bounds of what the first pass over the rows leaves to the second, which else makes it again. Held activations stay in
// the cache, and those of all chains of a run in the memory. What is saved of a last hidden layer may not depend on the
// number of chains: draws would, by rounding.
inline constexpr std::size_t max_held_bytes = std::size_t{1} << 22, max_held_by_all_chains = std::size_t{1} << 28;
inline constexpr std::size_t max_saved_bytes = std::size_t{1} << 24;

// The conditional law of the output weights at a point: S^(1/2) (alpha + d), d ~ N(0, M^-1), output by output.
struct ConditionalWeights {
    // By group: W, M^-1 = W'W, M = I + S^(1/2) Phi'W Phi S^(1/2) / variance.
    std::vector<BlockedMatrix> factor;
    AlignedArray<double> alpha;   // rows of a group's length, in the order of groups and outputs
    double log_likelihood = 0.0;  // of the full model at the conditional mean S^(1/2) alpha
};

// The log marginal likelihood of theta_h (K_h,), see model/collapse.hpp. With m the conditional mean of the output
// weights it is l(theta_h, m) - |alpha|^2 / 2 - log|M| / 2, and its gradient that of l at m, less W Phi S^(1/2) M^-1
// S^(1/2) / variance for the features. The residuals are formed at m: in float32 the other form,
// y'y - m'Phi'y, cancels.
//
// Where each row has a noise variance for each output (CollapsePlan::by_row), another output of the network, W holds
// its inverse and `variance` is 1. log|M| then has a derivative by the logarithm of that variance too, and theta_h
// holds the weights behind it, in the same layer as those that are integrated out.
//
// Where the noise of one output is normal given a precision of each row (LikelihoodTerms::is_mixture), the precisions
// are part of the state, and what takes the place of the row weights; the density is that given them.
template <class T>
class CollapsedTarget {
public:
    using Kept = ConditionalWeights;
    static constexpr std::int64_t side_by_side = 1;
    static constexpr bool follows_prior = true;

    // As TileTarget's; prior_variance (K,). `chains`: of the run.
    CollapsedTarget(const Plan& plan, const PackedData<T>& data, const LikelihoodTerms<T>& likelihood,
                    const CollapsePlan& collapse, const std::vector<double>& variance, std::int64_t threads,
                    std::int64_t chains)
        : plan_(&plan),
          data_(&data),
          collapse_(&collapse),
          likelihood_(likelihood.given_precisions()),
          variance_(variance),
          mixture_(likelihood.is_mixture() ? std::make_unique<Mixture>(plan, data, likelihood, threads) : nullptr),
          team_(plan, data, threads, &collapse, goes_narrow(plan, data) ? 0 : held_bytes_of(chains), precisions()),
          theta_(plan.dim),
          reverse_weights_(collapse.by_row ? 0 : plan.layers.back().n_varying() * reverse_row()) {
        for (std::int64_t s = 0; s < team_.n_sums(); ++s) {
            moments_.emplace_back(plan.n_outputs, collapse.n_features(), collapse.by_row ? plan.n_outputs / 2 : 1);
            totals_.emplace_back(plan);
        }
        for (const CollapsedGroup& group : collapse.groups) groups_.emplace_back(group);
        if (!collapse.hidden_is_first()) hidden_prior_.resize(collapse.hidden.size());
        find_limits();
        if (collapse.by_row) {
            factors_ = AlignedArray<T>(std::ssize(collapse.groups) * collapse.n_features() * collapse.n_features());
            gradient_ = AlignedArray<T>(plan.dim);
            return;
        }
        const PlanLayer& output = plan.layers.back();
        for (std::int64_t c = 0; c < output.n_rows(); ++c)
            for (std::int64_t j = 0; j < output.n_varying(); ++j)
                reverse_weights_[j * reverse_row() + c] =
                    static_cast<T>(output.weights[static_cast<std::size_t>(c * output.n_sources() + j)]);
        for (const std::int32_t source : collapse.sources)
            if (source < output.n_varying()) n_read_ = std::max<std::int64_t>(n_read_, source + 1);
        // Where Evaluator uses it too.
        if (goes_narrow(plan, data)) narrow_ = std::make_unique<NarrowPass<T>>(plan, data, true, precisions());
        // A single tile's activations are held.
        const std::int64_t size = narrow_ || data.n_tiles == 1 ? 0 : data.n_tiles * team_.saved_size();
        if (size > 0 && static_cast<std::size_t>(size) * sizeof(T) <= max_saved_bytes) saved_ = AlignedArray<T>(size);
    }

    std::int64_t dim() const { return collapse_->hidden_dim(); }
    std::int64_t full_dim() const { return plan_->dim; }
    std::int64_t output_normals() const { return plan_->dim - dim(); }
    bool draws_by_row() const { return mixture_ != nullptr; }
    GaussianTerms terms() const { return {likelihood_.terms}; }
    const double* prior_variance(const double* given) const {
        if (hidden_prior_.empty()) return given;
        take_hidden(given, hidden_prior_.data());
        return hidden_prior_.data();
    }

    Kept make_kept() const {
        Kept kept;
        std::int64_t length = 0;
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            kept.factor.emplace_back(collapse_->groups[g].size());
            length += kept.factor.back().row_size() * std::ssize(collapse_->groups[g].outputs);
        }
        kept.alpha = AlignedArray<double>(length);
        return kept;
    }

    void place(const T* theta, State<T, Kept>& state) const { take_hidden(theta, state.theta.data()); }
    const T* theta_of(const State<T, Kept>& state) const { return state.theta.data(); }

    void evaluate(State<T, Kept>& state, bool gradient) {
        put_hidden(state.theta.data(), theta_.data());
        if (narrow_ && (!wide_moments_ || std::is_same_v<T, double>)) return evaluate_narrow(state, gradient);
        for (const CollapsedGroup& group : collapse_->groups)
            for (const std::vector<std::int64_t>& at : group.theta)
                for (const std::int64_t entry : at) theta_[entry] = T(0);
        team_.sum(
            moments_, [&](TilePass<T>& pass) { pass.set_theta(theta_.data()); },
            [&](TilePass<T>& pass, std::int64_t first, std::int64_t end, Moments& moments) {
                collapse_->by_row ? pass.moments_by_row(*data_, first, end, limits_.data(), moments)
                                  : pass.moments(*data_, first, end, wide_moments_, saved_.data(), moments);
            },
            [](Moments& total, const Moments& other) { total.add(other); });
        const double marginal = condition(moments_.front(), state.kept);
        if (gradient) collapse_->by_row ? find_factors(state.kept) : find_reverse_weights(state.kept);

        const bool hidden_done = team_.holds_all();
        team_.sum(
            totals_,
            // A thread that summed no slab above has not read theta yet.
            [&](TilePass<T>& pass) {
                hidden_done ? pass.set_output_theta(theta_.data()) : pass.set_theta(theta_.data());
            },
            [&](TilePass<T>& pass, std::int64_t first, std::int64_t end, Totals& totals) {
                if (collapse_->by_row)
                    pass.evaluate_collapsed_by_row(*data_, likelihood_, first, end,
                                                   gradient ? factors_.data() : nullptr, hidden_done, totals);
                else
                    pass.evaluate_collapsed(*data_, likelihood_, first, end,
                                            gradient ? reverse_weights_.data() : nullptr, n_read_, hidden_done,
                                            saved_.data(), totals);
            },
            [&](Totals& total, const Totals& other) { total.add(other, gradient); });
        if (gradient && collapse_->by_row) {
            totals_.front().gather(*plan_, plan_->layers.size(), gradient_.data());
            take_hidden(gradient_.data(), state.gradient.data());
        } else if (gradient) {
            totals_.front().gather(*plan_, plan_->layers.size() - 1, state.gradient.data());
        }
        state.kept.log_likelihood = likelihood_.constant + totals_.front().log_likelihood;
        state.log_likelihood = state.kept.log_likelihood + marginal;
    }

    // Draws the output weights. With d their distance from the mean over S^(1/2), l falls by (d'M d - d'd)/2 - d'alpha.
    double complete(const State<T, Kept>& state, const T* w, T* theta) {
        put_hidden(state.theta.data(), theta);
        double log_likelihood = state.kept.log_likelihood;
        const double* alpha = state.kept.alpha.data();
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            const CollapsedGroup& group = collapse_->groups[g];
            double* const z = groups_[g].x.data();
            double* const d = groups_[g].y.data();
            for (const std::vector<std::int64_t>& at : group.theta) {
                for (std::int64_t i = 0; i < group.size(); ++i) z[i] = static_cast<double>(w[i]);
                multiply_transposed(state.kept.factor[g], z, d);
                for (std::int64_t i = 0; i < group.size(); ++i) {
                    log_likelihood += d[i] * alpha[i] - 0.5 * (z[i] * z[i] - d[i] * d[i]);
                    theta[at[static_cast<std::size_t>(i)]] =
                        static_cast<T>(groups_[g].deviation[i] * (alpha[i] + d[i]));
                }
                w += group.size();
                alpha += state.kept.factor[g].row_size();
            }
        }
        return log_likelihood;
    }

    void sum_of_squares(const State<T, Kept>&, const T* theta, double* squares) {
        sum_squares(team_, *data_, plan_->n_outputs, theta, squares);
    }

    // Draws the rows' precisions given theta (full_dim,) and the variance, then a variance given both, to drawn (1,).
    void draw_variances(const T* theta, VarianceStreams& streams, double shape, const double* rate,
                        std::vector<double>& drawn) {
        const OutputRows<T>& rows = mixture_->evaluator.outputs(theta);
        std::copy_n(mixture_->precisions.data(), mixture_->precisions.size(), mixture_->before.data());
        T* next = mixture_->precisions.data();
        mixture_->full.of_scales([&](const auto& own, std::size_t c) {
            if constexpr (std::remove_cvref_t<decltype(own)>::is_mixture)
                drawn[c] = own.draw(rows.of(c), variance_[c], likelihood_.terms, shape, rate[c], streams,
                                    [&next](double precision) { *next++ = static_cast<T>(precision); });
        });
    }
    // Back to the precisions before the last draw.
    void restore_precisions() {
        std::copy_n(mixture_->before.data(), mixture_->before.size(), mixture_->precisions.data());
    }
    // l at theta (full_dim,), over the precisions.
    double mixture_log_likelihood(const T* theta) {
        return mixture_->evaluator.evaluate(theta, mixture_->full, nullptr);
    }
    void exchange(Checkpoint& saved) {
        if (mixture_) saved.exchange_array(mixture_->precisions.data(), mixture_->precisions.size());
    }

    // One variance for each output takes a plan in which no outputs share a group.
    void set_variance(State<T, Kept>& state, const std::vector<double>& variance, bool gradient) {
        likelihood_.set_variance(variance);
        if (mixture_) mixture_->full.set_variance(variance);
        for (std::size_t c = 0; c < variance_.size(); ++c) variance_[c] = variance[variance.size() == 1 ? 0 : c];
        find_limits();
        evaluate(state, gradient);
    }

    // The outputs of a group share its variances before and after: their weights have the same scales.
    void set_prior_variance(State<T, Kept>& state, const double* prior_variance, bool gradient) {
        for (std::size_t g = 0; g < groups_.size(); ++g)
            groups_[g].set_prior_variance(prior_variance, collapse_->groups[g]);
        find_limits();
        evaluate(state, gradient);
    }

private:
    struct Mixture {
        LikelihoodTerms<T> full;  // of the model over the precisions
        Evaluator<T> evaluator;   // of the same
        // (n_tiles, stride), with zeros for padding: of each row, and before they were drawn last.
        AlignedArray<T> precisions, before;

        Mixture(const Plan& plan, const PackedData<T>& data, const LikelihoodTerms<T>& likelihood, std::int64_t threads)
            : full(likelihood),
              evaluator(plan, data, threads),
              precisions(data.n_tiles * data.layout.stride),
              before(precisions.size()) {}
    };
    const T* precisions() const { return mixture_ ? mixture_->precisions.data() : nullptr; }

    static bool goes_narrow(const Plan& plan, const PackedData<T>& data) {
        return data.n_slabs == 1 && NarrowPass<T>::supports(plan);
    }
    static std::size_t held_bytes_of(std::int64_t chains) {
        return std::min(max_held_bytes,
                        max_held_by_all_chains / static_cast<std::size_t>(std::max<std::int64_t>(1, chains)));
    }

    // theta_h (K_h,) from and to its places in theta (K,).
    template <class X>
    void take_hidden(const X* theta, X* hidden) const {
        if (collapse_->hidden_is_first()) return void(std::copy_n(theta, dim(), hidden));
        for (std::size_t i = 0; i < collapse_->hidden.size(); ++i) hidden[i] = theta[collapse_->hidden[i]];
    }
    void put_hidden(const T* hidden, T* theta) const {
        if (collapse_->hidden_is_first()) return void(std::copy_n(hidden, dim(), theta));
        for (std::size_t i = 0; i < collapse_->hidden.size(); ++i) theta[collapse_->hidden[i]] = hidden[i];
    }

    // P features or fewer.
    template <int P = widest_narrow + 1>
    double condition_narrow(Kept& kept, bool gradient) {
        const CollapsedGroup& group = collapse_->groups.front();
        if constexpr (P > 2)
            if (group.size() < P) return condition_narrow<P - 1>(kept, gradient);
        const double precision = 1.0 / variance_of(group);
        const double* const deviation = groups_.front().deviation.data();
        double* const alpha = kept.alpha.data();
        const NarrowConditional<P> law(moments_.front(), deviation, precision, kept.factor.front(), alpha);
        for (int i = 0; i < P; ++i) theta_[dim() + i] = static_cast<T>(deviation[i] * alpha[i]);
        for (int i = 0; i + 1 < P && gradient; ++i) {
            T* const row = reverse_weights_.data() + i * (1 + P);
            const double scale = -precision * deviation[i];
            row[0] = theta_[dim() + i];
            for (int k = 0; k < P; ++k) row[1 + k] = static_cast<T>(scale * deviation[k] * law.inverse[i][k]);
        }
        return law.marginal;
    }

    void evaluate_narrow(State<T, Kept>& state, bool gradient) {
        narrow_->moments(theta_.data(), moments_.front());
        const double marginal = condition_narrow(state.kept, gradient);
        state.kept.log_likelihood =
            likelihood_.constant + narrow_->evaluate_collapsed(theta_.data(), likelihood_.parameters.front(),
                                                               gradient ? reverse_weights_.data() : nullptr,
                                                               state.gradient.data());
        state.log_likelihood = state.kept.log_likelihood + marginal;
    }

    // Up to where sums may be in float32: see CollapsedGroup::narrow_ratio and narrow_entry.
    void find_limits() {
        wide_moments_ = false;
        limits_.clear();
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            const CollapsedGroup& group = collapse_->groups[g];
            const double* const deviation = groups_[g].deviation.data();
            const double largest = *std::max_element(deviation, deviation + group.size()), prior = largest * largest;
            wide_moments_ = wide_moments_ || prior / variance_of(group) > group.narrow_ratio;
            // The errors of tiles are independent.
            limits_.push_back(group.narrow_entry / (prior * std::sqrt(static_cast<double>(data_->n_tiles))));
        }
    }

    // Of reverse_weights_: the outputs, then the features.
    std::int64_t reverse_row() const { return plan_->n_outputs + collapse_->n_features(); }

    double variance_of(const CollapsedGroup& group) const {
        const std::int32_t row = group.outputs.front();
        return variance_[static_cast<std::size_t>(plan_->layers.back().rows[static_cast<std::size_t>(row)])];
    }

    // Computes the conditional law, writes its mean to theta_ and returns -|alpha|^2 / 2 - log|M| / 2.
    double condition(const Moments& moments, Kept& kept) {
        const std::int64_t n_features = collapse_->n_features();
        double result = 0.0;
        double* alpha = kept.alpha.data();
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            const CollapsedGroup& group = collapse_->groups[g];
            GroupWork& work = groups_[g];
            const std::int64_t size = group.size();
            const double precision = 1.0 / variance_of(group);
            const double* const deviation = work.deviation.data();
            for (std::int64_t i = 0; i < size; ++i) {
                double* const row = work.matrix.row(i);
                const double scale = precision * deviation[i];
                const double* const gram = moments.gram.data() +
                                           (collapse_->by_row ? group.outputs.front() * n_features * n_features : 0) +
                                           group.features[static_cast<std::size_t>(i)] * n_features;
                if (work.contiguous)
                    for (std::int64_t j = i; j < size; ++j) row[j] = scale * deviation[j] * gram[j];
                else
                    for (std::int64_t j = i; j < size; ++j)
                        row[j] = scale * deviation[j] * gram[group.features[static_cast<std::size_t>(j)]];
                row[i] += 1.0;
                std::fill_n(row + size, work.matrix.row_size() - size, 0.0);
            }
            for (std::int64_t i = size; i < work.matrix.rows(); ++i) {
                std::fill_n(work.matrix.row(i), work.matrix.row_size(), 0.0);
                work.matrix.row(i)[i] = 1.0;
            }
            result -= 0.5 * static_cast<double>(group.outputs.size()) * factorise(work.matrix);
            invert_factor(work.matrix, kept.factor[g]);
            for (std::size_t o = 0; o < group.outputs.size(); ++o) {
                const double* const cross = moments.cross.data() + group.outputs[o] * n_features;
                for (std::int64_t i = 0; i < size; ++i)
                    work.x[i] = precision * deviation[i] * cross[group.features[static_cast<std::size_t>(i)]];
                multiply(kept.factor[g], work.x.data(), work.y.data());
                multiply_transposed(kept.factor[g], work.y.data(), alpha);
                for (std::int64_t i = 0; i < size; ++i) {
                    theta_[group.theta[o][static_cast<std::size_t>(i)]] = static_cast<T>(deviation[i] * alpha[i]);
                    result -= 0.5 * alpha[i] * alpha[i];
                }
                alpha += work.matrix.row_size();
            }
        }
        return result;
    }

    void find_reverse_weights(const Kept& kept) {
        const std::int64_t n_outputs = plan_->n_outputs, n_varying = plan_->layers.back().n_varying();
        T* const weights = reverse_weights_.data();
        for (std::int64_t j = 0; j < n_read_; ++j)
            std::fill_n(weights + j * reverse_row() + n_outputs, collapse_->n_features(), T(0));
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            const CollapsedGroup& group = collapse_->groups[g];
            GroupWork& work = groups_[g];
            const double factor = -static_cast<double>(group.outputs.size()) / variance_of(group);
            multiply_factor(kept.factor[g], work.matrix);
            for (std::int64_t i = 0; i < group.size(); ++i) {
                const std::int32_t feature = group.features[static_cast<std::size_t>(i)];
                const std::int64_t source = collapse_->sources[static_cast<std::size_t>(feature)];
                if (source >= n_varying) continue;
                T* const row = weights + source * reverse_row();
                for (std::size_t o = 0; o < group.outputs.size(); ++o)
                    row[group.outputs[o]] = theta_[group.theta[o][static_cast<std::size_t>(i)]];
                const double* const deviation = work.deviation.data();
                const double* const inverse = work.matrix.row(i);
                const double scale = factor * deviation[i];
                if (work.contiguous)
                    for (std::int64_t k = 0; k < group.size(); ++k)
                        row[n_outputs + k] += static_cast<T>(scale * deviation[k] * inverse[k]);
                else
                    for (std::int64_t k = 0; k < group.size(); ++k)
                        row[n_outputs + group.features[static_cast<std::size_t>(k)]] +=
                            static_cast<T>(scale * deviation[k] * inverse[k]);
            }
        }
    }

    // Writes F = W S^(1/2) of each group to factors_.
    void find_factors(const Kept& kept) {
        const std::int64_t n_features = collapse_->n_features();
        T* factor = factors_.data();
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            const CollapsedGroup& group = collapse_->groups[g];
            for (std::int64_t i = 0; i < group.size(); ++i)
                for (std::int64_t k = 0; k <= i; ++k)
                    factor[i * n_features + group.features[static_cast<std::size_t>(k)]] =
                        static_cast<T>(kept.factor[g].row(i)[k] * groups_[g].deviation[k]);
            factor += n_features * n_features;
        }
    }

    // Workspace of one group.
    struct GroupWork {
        BlockedMatrix matrix;            // M, its factor, M^-1
        AlignedArray<double> deviation;  // (p,) S^(1/2)
        AlignedArray<double> x, y;       // a row of the matrix each, zero in padding
        bool contiguous = true;          // the features are 0, 1, ..

        explicit GroupWork(const CollapsedGroup& group)
            : matrix(group.size()), deviation(group.size()), x(matrix.row_size()), y(matrix.row_size()) {
            std::copy(group.prior_deviation.begin(), group.prior_deviation.end(), deviation.data());
            for (std::size_t i = 0; i < group.features.size(); ++i)
                contiguous = contiguous && group.features[i] == static_cast<std::int32_t>(i);
        }

        void set_prior_variance(const double* prior_variance, const CollapsedGroup& group) {
            for (std::int64_t i = 0; i < group.size(); ++i)
                deviation[i] = std::sqrt(prior_variance[group.theta.front()[static_cast<std::size_t>(i)]]);
        }
    };

    const Plan* plan_;  // these three outlive the target
    const PackedData<T>* data_;
    const CollapsePlan* collapse_;
    LikelihoodTerms<T> likelihood_;
    std::vector<double> variance_;      // (m,) of the noise
    std::unique_ptr<Mixture> mixture_;  // null for Gaussian noise
    mutable std::vector<double>
        hidden_prior_;            // (K_h,), the prior variances of theta_h; empty where they are the first
    bool wide_moments_ = false;   // see CollapsedGroup::narrow_ratio
    std::vector<double> limits_;  // (groups,), see TilePass::moments_by_row
    SlabTeam<T> team_;
    AlignedArray<T> theta_;            // (K,): theta_h with the conditional mean as its output weights
    AlignedArray<T> reverse_weights_;  // (n_varying, m + P), see TilePass::evaluate_collapsed
    AlignedArray<T> saved_;            // (n_tiles, saved_size()), see TilePass::moments; empty where nothing is saved
    AlignedArray<T> factors_;          // (groups, P, P), see TilePass::evaluate_collapsed_by_row
    AlignedArray<T> gradient_;         // (K,), by theta
    std::int64_t n_read_ = 0;          // varying sources up to the last that a Bayesian output weight reads
    std::vector<Moments> moments_;
    std::vector<Totals> totals_;
    std::vector<GroupWork> groups_;
    std::unique_ptr<NarrowPass<T>> narrow_;  // in place of the team, unless the moments are wide
};

}  // namespace patrac::PATRAC_LEVEL
