// The CPU model of one level: plan, packed data and a pool of evaluators behind the facade's interface.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cpu/chain/chain.hpp"
#include "cpu/chain/collapsed.hpp"
#include "cpu/chain/rotated.hpp"
#include "cpu/chain/target.hpp"
#include "cpu/levels/model.hpp"
#include "cpu/tiles/evaluator.hpp"
#include "cpu/tiles/pack.hpp"
#include "schedule/interruption.hpp"
#include "schedule/threads.hpp"
#include "schedule/workspace_pool.hpp"
#include "shared/crank_nicolson.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class CpuModel final : public Model<T> {
public:
    CpuModel(const ModelSpec& spec, const DataView<T>& data, std::string level)
        : level_(std::move(level)),
          plan_(Plan::make(spec.network, spec.companion.has_value())),
          reports_(plan_.report(spec.network)),
          packer_(plan_, spec),
          weight_(sum_of_weights(data)),
          terms_(spec.likelihood, weight_),
          variance_(spec.likelihood.noise_variance()),
          hidden_(patrac::hidden_entries(plan_, collapsed_outputs(terms_.kind, plan_.n_outputs))),
          data_(plan_,
                TileLayout(plan_, data.n_rows, targets_per_row(spec.likelihood.kind, plan_.n_outputs), lanes_v<Vec<T>>,
                           sizeof(T), PackedData<T>::can_stay(plan_, data)),
                data.n_rows, lanes_v<Vec<T>>) {
        if (has_row_variances()) variance_.assign(static_cast<std::size_t>(plan_.n_outputs / 2), 1.0);
        packer_.fill(data, spec.likelihood.kind, data_);
    }

    std::int64_t dim() const override { return plan_.dim; }
    std::int64_t n_inputs() const override { return plan_.n_inputs; }
    std::int64_t n_outputs() const override { return plan_.n_outputs; }
    std::vector<LayerReport> layer_reports() const override { return reports_; }
    std::int64_t tile_rows() const override { return data_.layout.stride; }
    std::int64_t cached_bytes() const override {
        return (data_.values.size() + data_.last_inputs.size()) * static_cast<std::int64_t>(sizeof(T));
    }
    std::string level() const override { return level_; }

    void evaluate(const T* theta, std::int64_t batch, double* log_likelihood, T* gradient, std::int64_t threads,
                  const double* variance) const override {
        const auto evaluate_one = [&](Evaluator<T>& evaluator, std::int64_t b) {
            T* const g = gradient ? gradient + b * plan_.dim : nullptr;
            if (!variance) {
                log_likelihood[b] = evaluator.evaluate(theta + b * plan_.dim, terms_, g);
                return;
            }
            LikelihoodTerms<T> terms = terms_;
            terms.set_variance({variance + b * plan_.n_outputs, variance + (b + 1) * plan_.n_outputs});
            log_likelihood[b] = evaluator.evaluate(theta + b * plan_.dim, terms, g);
        };
        // Starting a thread costs about as much as a slab, so each thread gets several.
        if (const std::int64_t team = std::min(threads, data_.n_slabs / 4); batch == 1 && team > 1) {
            Evaluator<T> evaluator(plan_, data_, team);
            return evaluate_one(evaluator, 0);
        }
        parallel_for(batch, threads, [&](std::int64_t b, std::int64_t) { evaluate_one(*evaluator(), b); });
    }

    void variance_slope(const T* theta, const double* variance, double* slope) const override {
        (*evaluator()).variance_slope(theta, terms_, variance, slope);
    }

    void predict(const T* theta, std::int64_t batch, const T* inputs, std::int64_t n_rows, T* f,
                 std::int64_t threads) const override {
        threads = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(1, batch));
        // Some thousand rows at a time bound the memory of the folded constants.
        const std::int64_t block_rows = std::max<std::int64_t>(1, 8192 / data_.layout.stride) * data_.layout.stride;
        for (std::int64_t first = 0; first < n_rows; first += block_rows) {
            const std::int64_t rows = std::min(block_rows, n_rows - first);
            TileLayout layout(plan_, rows, 0, lanes_v<Vec<T>>, sizeof(T));
            PackedData<T> block(plan_, layout, rows, lanes_v<Vec<T>>);
            packer_.fill(DataView<T>{.n_rows = rows,
                                     .inputs = inputs + first * plan_.n_inputs,
                                     .row_step = plan_.n_inputs,
                                     .column_step = 1},
                         terms_.kind, block);
            std::vector<std::unique_ptr<TilePass<T>>> passes(static_cast<std::size_t>(threads));
            parallel_for(batch, threads, [&](std::int64_t b, std::int64_t worker) {
                auto& pass = passes[static_cast<std::size_t>(worker)];
                if (!pass) pass = std::make_unique<TilePass<T>>(plan_, layout);
                pass->set_theta(theta + b * plan_.dim);
                pass->predict(block, f + (b * n_rows + first) * plan_.n_outputs);
            });
        }
    }

    void evaluate_collapsed(const T* theta, std::int64_t batch, const double* prior_variance, double* log_likelihood,
                            T* gradient) const override {
        Collapsed density(*this, prior_variance, variance_);
        const std::int64_t dim = std::ssize(hidden_);
        for (std::int64_t b = 0; b < batch; ++b) {
            Interruption::check();
            log_likelihood[b] = density.evaluate(theta + b * dim, gradient ? gradient + b * dim : nullptr);
        }
    }

    std::unique_ptr<CollapsedDensity<T>> collapsed_density(const double* prior_variance,
                                                           const double* variance) const override {
        return std::make_unique<Collapsed>(
            *this, prior_variance, variance ? std::vector<double>(variance, variance + plan_.n_outputs) : variance_);
    }

    const std::vector<std::int64_t>& hidden_entries() const override { return hidden_; }

    double log_acceptance(const T* from, const T* to, const double* prior_variance, KernelKind kernel, double step_size,
                          bool collapse, const double* step_factor) const override {
        const auto ratio = [&](auto target, const double* factor) {
            CrankNicolson<T> move(kernel, target.prior_variance(prior_variance), target.dim(), 0.0, factor);
            move.set_step_size(step_size);
            StateOf<T, decltype(target)> u(target.dim(), target.make_kept()), v(target.dim(), target.make_kept());
            for (auto [state, theta] : {std::pair{&u, from}, std::pair{&v, to}}) {
                std::copy_n(theta, target.dim(), state->theta.data());
                target.evaluate(*state, move.uses_gradient());
            }
            return move.log_ratio(u, v);
        };
        if (!collapse) return ratio(TileTarget<T>(plan_, data_, terms_, {}, 1), step_factor);
        const CollapsePlan plan = collapse_plan(prior_variance, variance_);
        const std::vector<double> factor = hidden_factor(step_factor);
        return ratio(collapsed_target(plan, variance_, 1), step_factor ? factor.data() : nullptr);
    }

    bool sample(const RunConfig& config, const RunBuffers<T>& buffers, const Monitor& monitor) const override {
        if (config.variance.sampled() && !terms_.has_variance())
            throw std::invalid_argument("likelihood: only Gaussian and Student-t noise have a variance to sample");
        if (config.collapse && std::isnan(shrink_of(config.kernel, 1.0, 1.0)))
            throw std::invalid_argument(
                "kernel: only kernels of the Crank-Nicolson family integrate output weights out");
        // Threads that have no chain of their own share the rows of the others' evaluations.
        const std::int64_t each = std::max<std::int64_t>(1, config.threads / std::max<std::int64_t>(1, config.chains));
        if (config.collapse) {
            // One variance for all outputs leaves them equal, whatever it is.
            const std::vector<double> variance =
                config.variance.sampled() ? std::vector<double>(static_cast<std::size_t>(plan_.n_outputs), 1.0)
                                          : variance_;
            if (terms_.is_mixture() && variance.size() != 1)
                throw std::invalid_argument(
                    "kernel: output weights of one output with a sampled scale are integrated out under this noise");
            const CollapsePlan collapse =
                collapse_plan(buffers.prior_variance, variance, config.variance.rate.size() > 1);
            const auto target = [&] { return collapsed_target(collapse, variance, each, config.chains); };
            const std::vector<double> factor = hidden_factor(buffers.step_factor);
            RunBuffers<T> hidden_buffers = buffers;
            if (buffers.step_factor) hidden_buffers.step_factor = factor.data();
            if (!buffers.rotation.empty()) return run_rotated(target, config, hidden_buffers, monitor);
            return run_transition<T, CrankNicolson<T>>(target, config, hidden_buffers, monitor);
        }
        const auto target = [&] { return TileTarget<T>(plan_, data_, terms_, config.variance.initial, each); };
        if (!buffers.rotation.empty()) return run_rotated(target, config, buffers, monitor);
        return run_targets(target, config, buffers, monitor);
    }

private:
    // An evaluator for one evaluation; it is returned to the pool.
    typename WorkspacePool<Evaluator<T>>::Lease evaluator() const {
        return pool_.take([this] { return std::make_unique<Evaluator<T>>(plan_, data_, 1); });
    }

    class Collapsed final : public CollapsedDensity<T> {
    public:
        Collapsed(const CpuModel& model, const double* prior_variance, const std::vector<double>& variance)
            : plan_(model.collapse_plan(prior_variance, variance)),
              target_(model.collapsed_target(plan_, model.variance_, 1)),
              state_(target_.dim(), target_.make_kept()) {
            if (variance != model.variance_) target_.set_variance(state_, variance, false);
        }

        double evaluate(const T* theta_hidden, T* gradient) override {
            std::copy_n(theta_hidden, target_.dim(), state_.theta.data());
            target_.evaluate(state_, gradient != nullptr);
            if (gradient) std::copy_n(state_.gradient.data(), target_.dim(), gradient);
            return state_.log_likelihood;
        }

        void complete(const T* theta_hidden, const T* normals, T* theta) override {
            evaluate(theta_hidden, nullptr);
            target_.complete(state_, normals, theta);
        }

    private:
        CollapsePlan plan_;
        CollapsedTarget<T> target_;
        State<T, ConditionalWeights> state_;
    };

    static double sum_of_weights(const DataView<T>& data) {
        double weight = 0.0;
        for (std::int64_t r = 0; r < data.n_rows; ++r) weight += data.row_weights[r];
        return weight;
    }

    bool has_row_variances() const { return terms_.kind == LikelihoodKind::heteroscedastic_gaussian; }

    // Chains in the rotated coordinates of make_target()'s targets.
    template <class MakeTarget>
    static bool run_rotated(const MakeTarget& make_target, const RunConfig& config, const RunBuffers<T>& buffers,
                            const Monitor& monitor) {
        if (std::isnan(shrink_of(config.kernel, 1.0, 1.0)))
            throw std::invalid_argument(
                "kernel: only kernels of the Crank-Nicolson family step in rotated coordinates");
        const auto rotated = [&] {
            return RotatedTarget<T, decltype(make_target())>(make_target(), buffers.rotation, buffers.prior_variance);
        };
        return run_transition<T, CrankNicolson<T>>(rotated, config, buffers, monitor);
    }

    // The step factors of theta_h from those of theta (K,), which may be null.
    std::vector<double> hidden_factor(const double* step_factor) const {
        std::vector<double> factor;
        for (const std::int64_t entry : hidden_)
            if (step_factor) factor.push_back(step_factor[entry]);
        return factor;
    }

    CollapsePlan collapse_plan(const double* prior_variance, const std::vector<double>& variance,
                               bool apart = false) const {
        CollapsePlan plan = CollapsePlan::make(plan_, prior_variance, variance, weight_, apart || has_row_variances());
        plan.by_row = has_row_variances();
        return plan;
    }

    CollapsedTarget<T> collapsed_target(const CollapsePlan& collapse, const std::vector<double>& variance,
                                        std::int64_t threads, std::int64_t chains = 1) const {
        return CollapsedTarget<T>(plan_, data_, terms_, collapse, variance, threads, chains);
    }

    std::string level_;
    Plan plan_;
    std::vector<LayerReport> reports_;
    Packer packer_;
    double weight_;  // the sum of the row weights
    LikelihoodTerms<T> terms_;
    // (m,) of the noise, Gaussian; of noise with a variance of each row, ones for the means; else empty
    std::vector<double> variance_;
    std::vector<std::int64_t> hidden_;  // (K_h,), see hidden_entries()
    PackedData<T> data_;
    mutable WorkspacePool<Evaluator<T>> pool_;
};

}  // namespace patrac::PATRAC_LEVEL
