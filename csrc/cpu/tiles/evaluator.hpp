// Log-likelihood and gradient over all tiles, by one thread or several: sums over slabs of tiles, added in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/tiles/narrow_pass.hpp"
#include "cpu/tiles/packed.hpp"
#include "cpu/tiles/tile_pass.hpp"
#include "schedule/interruption.hpp"
#include "schedule/threads.hpp"

namespace patrac::PATRAC_LEVEL {

// The threads that share an evaluation, with the workspace of each.
template <class T>
class SlabTeam {
public:
    // At most `threads` of them, one for each slab of the data. No sum depends on how many there are, nor on
    // `held_bytes`: the hidden activations of all tiles are held from the first pass of a collapsed evaluation to the
    // second if they take no more. `row_weights`: see TileWorkspace.
    SlabTeam(const Plan& plan, const PackedData<T>& data, std::int64_t threads, const CollapsePlan* collapse = nullptr,
             std::size_t held_bytes = 0, const T* row_weights = nullptr)
        : data_(&data) {
        threads = std::min(threads, data.n_slabs);
        if (threads > 1) team_ = std::make_unique<Team>(threads);
        const std::int64_t members = team_ ? team_->size() : 1;
        const std::int64_t held = collapse && members == 1 ? held_tiles(plan, *collapse, held_bytes) : 1;
        holds_all_ = held == data.n_tiles;
        passes_.reserve(static_cast<std::size_t>(members));
        for (std::int64_t m = 0; m < members; ++m) passes_.emplace_back(plan, data.layout, collapse, held, row_weights);
        has_theta_.resize(static_cast<std::size_t>(members));
    }

    // Whether the only workspace holds the hidden activations of all tiles.
    bool holds_all() const { return holds_all_; }
    // See TilePass::saved_size().
    std::int64_t saved_size() const { return passes_.front().saved_size(); }

    // Number of sums that sum() needs: a single thread adds each slab to the first sum as soon as it is computed.
    std::int64_t n_sums() const { return team_ ? data_->n_slabs : std::min<std::int64_t>(2, data_->n_slabs); }

    // Leaves the sum over the data in sums.front(). prepare(pass) is called once for each workspace,
    // sum_slab(pass, first_tile, end_tile, sum) overwrites a sum, add(total, sum) adds one.
    template <class Sum, class Prepare, class SumSlab, class Add>
    void sum(std::vector<Sum>& sums, const Prepare& prepare, const SumSlab& sum_slab, const Add& add) {
        std::fill(has_theta_.begin(), has_theta_.end(), false);
        const auto one = [&](std::int64_t slab, std::int64_t member, Sum& into) {
            TilePass<T>& pass = passes_[static_cast<std::size_t>(member)];
            if (!has_theta_[static_cast<std::size_t>(member)]) prepare(pass);
            has_theta_[static_cast<std::size_t>(member)] = true;
            sum_slab(pass, data_->slab_start(slab), data_->slab_start(slab + 1), into);
        };
        Sum& total = sums.front();
        if (team_) {
            team_->run(data_->n_slabs, [&](std::int64_t slab, std::int64_t member) {
                Interruption::check();
                one(slab, member, sums[static_cast<std::size_t>(slab)]);
            });
            for (std::size_t s = 1; s < sums.size(); ++s) add(total, sums[s]);
        } else {
            one(0, 0, total);
            for (std::int64_t s = 1; s < data_->n_slabs; ++s) {
                Interruption::check();
                one(s, 0, sums.back());
                add(total, sums.back());
            }
        }
    }

private:
    // All tiles, or 1 where they would take more or what TilePass::moments() saves makes it needless.
    std::int64_t held_tiles(const Plan& plan, const CollapsePlan& collapse, std::size_t held_bytes) const {
        const std::int64_t stride = data_->layout.stride;
        if (LastHidden<T>(plan, stride, &collapse).serves_collapsed()) return 1;
        const std::int64_t size = data_->n_tiles * TileWorkspace<T>::hidden_size(plan, stride);
        return static_cast<std::size_t>(size) * sizeof(T) <= held_bytes ? data_->n_tiles : 1;
    }

    const PackedData<T>* data_;  // outlives the team
    std::unique_ptr<Team> team_;
    bool holds_all_ = false;
    std::vector<TilePass<T>> passes_;       // one for each member
    std::vector<unsigned char> has_theta_;  // (members,)
};

// sum_r weight_r (y_r - f_r)^2 of each output at theta (K,), to squares (m,).
template <class T>
void sum_squares(SlabTeam<T>& team, const PackedData<T>& data, std::int64_t n_outputs, const T* theta,
                 double* squares) {
    std::vector<std::vector<double>> sums(static_cast<std::size_t>(team.n_sums()),
                                          std::vector<double>(static_cast<std::size_t>(n_outputs)));
    team.sum(
        sums, [&](TilePass<T>& pass) { pass.set_theta(theta); },
        [&](TilePass<T>& pass, std::int64_t first, std::int64_t end, std::vector<double>& sum) {
            std::fill(sum.begin(), sum.end(), 0.0);
            pass.add_squares(data, first, end, sum.data());
        },
        [](std::vector<double>& total, const std::vector<double>& other) {
            for (std::size_t c = 0; c < total.size(); ++c) total[c] += other[c];
        });
    std::copy(sums.front().begin(), sums.front().end(), squares);
}

// The network's outputs of all rows, with the rows' weights and targets.
template <class T>
struct OutputRows {
    const PackedData<T>& data;
    std::int64_t n_outputs;
    std::vector<T> values;  // (n_tiles, m, stride)

    struct Output {
        const OutputRows& all;
        std::int64_t c;

        // Calls f(weight, output, target, step) for each row: numbers of a row's target lie `step` apart.
        template <class F>
        void each(const F& f) const {
            const std::int64_t stride = all.data.layout.stride;
            for (std::int64_t t = 0; t < all.data.n_tiles; ++t) {
                const T* const tile = all.data.tile(t);
                const T* const weight = tile + all.data.layout.row_weights;
                const T* const target = tile + all.data.layout.targets + c * stride;
                const T* const output = all.values.data() + (t * all.n_outputs + c) * stride;
                for (std::int64_t r = 0; r < all.data.rows_in_tile(t); ++r)
                    f(static_cast<double>(weight[r]), output[r], target + r, all.n_outputs * stride);
            }
        }
    };
    Output of(std::size_t c) const { return {*this, static_cast<std::int64_t>(c)}; }
};

template <class T>
class Evaluator {
public:
    // At most `threads` threads share an evaluation. The result does not depend on it.
    Evaluator(const Plan& plan, const PackedData<T>& data, std::int64_t threads)
        : plan_(&plan), data_(&data), team_(plan, data, threads), rows_{data, plan.n_outputs, {}} {
        for (std::int64_t s = 0; s < team_.n_sums(); ++s) totals_.emplace_back(plan);
        // Only where all rows are one slab: with more, threads share the general pass.
        if (data.n_slabs == 1 && NarrowPass<T>::supports(plan)) narrow_ = std::make_unique<NarrowPass<T>>(plan, data);
    }

    // l(theta), and g (K,) unless null.
    double evaluate(const T* theta, const LikelihoodTerms<T>& likelihood, T* gradient) {
        if (narrow_ && likelihood.kind == LikelihoodKind::gaussian)
            return likelihood.constant + narrow_->evaluate(theta, likelihood.parameters.front(), gradient);
        team_.sum(
            totals_, [&](TilePass<T>& pass) { pass.set_theta(theta); },
            [&](TilePass<T>& pass, std::int64_t first, std::int64_t end, Totals& totals) {
                pass.evaluate(*data_, likelihood, first, end, gradient != nullptr, totals);
            },
            [&](Totals& total, const Totals& other) { total.add(other, gradient != nullptr); });
        if (gradient) totals_.front().gather(*plan_, plan_->layers.size(), gradient);
        return likelihood.constant + totals_.front().log_likelihood;
    }

    // The weighted sums of squared residuals of the outputs, (m,).
    void sum_of_squares(const T* theta, double* squares) {
        sum_squares(team_, *data_, plan_->n_outputs, theta, squares);
    }

    // dl / d log variance of each output, (m,), at noise variances (m,), or squares of scales. One more pass over the
    // data.
    void variance_slope(const T* theta, const LikelihoodTerms<T>& likelihood, const double* variance, double* slope) {
        const std::int64_t m = plan_->n_outputs;
        if (!likelihood.draws_by_row()) {
            const double weight = likelihood.terms / static_cast<double>(m);
            sum_of_squares(theta, slope);
            for (std::int64_t c = 0; c < m; ++c) slope[c] = 0.5 * (slope[c] / variance[c] - weight);
            return;
        }
        const OutputRows<T>& rows = outputs(theta);
        likelihood.of_scales([&](const auto& own, std::size_t c) {
            slope[c] = 0.0;
            rows.of(c).each([&](double w, T f, const T* target, std::int64_t step) {
                slope[c] += w * own.slope(f, target, step, variance[c]);
            });
        });
    }

    // The outputs at theta, valid until the next call.
    const OutputRows<T>& outputs(const T* theta) {
        rows_.values.resize(static_cast<std::size_t>(data_->n_tiles * plan_->n_outputs * data_->layout.stride));
        std::vector<std::int64_t> tiles(static_cast<std::size_t>(team_.n_sums()));
        team_.sum(
            tiles, [&](TilePass<T>& pass) { pass.set_theta(theta); },
            [&](TilePass<T>& pass, std::int64_t first, std::int64_t end, std::int64_t& done) {
                pass.outputs(*data_, first, end, rows_.values.data());
                done = end - first;
            },
            [](std::int64_t& total, std::int64_t other) { total += other; });
        return rows_;
    }

private:
    const Plan* plan_;  // both outlive the evaluator
    const PackedData<T>* data_;
    SlabTeam<T> team_;
    std::vector<Totals> totals_;
    OutputRows<T> rows_;  // see outputs()
    std::unique_ptr<NarrowPass<T>> narrow_;
};

}  // namespace patrac::PATRAC_LEVEL
