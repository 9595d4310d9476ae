// Runs chains on a device: launches of pieces, the warm-up's events, draws copied out while the next piece runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/model/data_set.hpp"
#include "cuda/run/device.hpp"
#include "cuda/run/draw_buffers.hpp"
#include "cuda/run/slab_memory.hpp"
#include "cuda/run/variance_memory.hpp"
#include "schedule/schedule.hpp"

namespace patrac::PATRAC_LEVEL {

// The memory of chains on a device, and the launch that points into it.
template <class T>
class DeviceChains {
public:
    // The chains of each data set follow those of the one before. prior_variance (sets, K), start (chains, K);
    // step_factor (sets, K) or null; `collapse`: one for each data set, or none.
    DeviceChains(Device& device, const DevicePlan<T>& plan, std::int64_t sets, std::int64_t n_chains,
                 const double* prior_variance, const double* step_factor, const T* start, bool persists,
                 const std::vector<FlatCollapse>& collapse)
        : launch{} {
        const FlatCollapse* const shape = collapse.empty() ? nullptr : &collapse.front();
        launch.dim = shape ? shape->hidden_dim : plan.dim;
        const std::int64_t row = (launch.dim + 3) / 4 * 4, prior_row = (plan.dim + 3) / 4 * 4;
        std::vector<T> variance(static_cast<std::size_t>(sets * prior_row), T(1));
        std::vector<T> factor(step_factor ? variance.size() : 0, T(1));
        std::vector<double> constants(static_cast<std::size_t>(2 * sets));
        device.download(constants.data(), plan.constants, constants.size() * sizeof(double));
        for (std::int64_t d = 0; d < sets; ++d)
            for (int k = 0; k < plan.dim; ++k) {
                const auto at = static_cast<std::size_t>(d * prior_row + k);
                const double c = prior_variance[d * plan.dim + k];
                variance[at] = static_cast<T>(c);
                if (step_factor) factor[at] = static_cast<T>(step_factor[d * plan.dim + k]);
                constants[static_cast<std::size_t>(2 * d + 1)] -= 0.5 * std::log(2.0 * std::numbers::pi * c);
            }
        std::vector<T> theta(static_cast<std::size_t>(n_chains * row));
        for (std::int64_t c = 0; c < n_chains; ++c)
            std::copy_n(start + c * plan.dim, launch.dim, theta.data() + c * row);

        variance_ = DeviceVector<T>(device, variance);
        if (step_factor) step_factor_ = DeviceVector<T>(device, factor);
        constants_ = DeviceVector<double>(device, constants);
        theta_ = DeviceVector<T>(device, theta);
        gradient_ = DeviceVector<T>(device, n_chains * row);
        momentum_ = DeviceVector<T>(device, persists ? n_chains * row : 1);
        chains = DeviceVector<DeviceChain>(device, n_chains);

        launch.plan = plan;
        launch.plan.prior_variance = variance_.data();
        launch.plan.prior_step = prior_row;
        launch.step_factor = step_factor ? step_factor_.data() : nullptr;
        launch.plan.constants = constants_.data();
        launch.layout = layout_of(device, plan, launch.dim, persists, shape, n_chains);
        if (!fits_shared(device, launch.layout)) workspace_ = DeviceVector<T>(device, n_chains * launch.layout.size);
        launch.workspace = workspace_.data();
        if (shape) send_collapse(device, collapse, n_chains);
        launch.chains_of_set = static_cast<int>(n_chains / sets);
        launch.theta = theta_.data();
        launch.gradient = gradient_.data();
        launch.momentum = momentum_.data();
        launch.row = static_cast<int>(row);
        launch.chains = chains.data();
    }

    // Where each chain has a multiprocessor for itself, shared memory is there for a second place of derivatives.
    // Beside a second block it would be taken from the L1 cache.
    static WorkspaceLayout layout_of(const Device& device, const DevicePlan<T>& plan, int dim, bool persists,
                                     const FlatCollapse* collapse, std::int64_t n_chains) {
        const DeviceStatus status = device.status();
        const WorkspaceLayout layout = WorkspaceLayout::of(plan, dim, persists, collapse);
        if (collapse || n_chains > status.multiprocessors) return layout;
        return layout.alternating(plan, status.shared_bytes / static_cast<std::int64_t>(sizeof(T)));
    }
    static bool fits_shared(const Device& device, const WorkspaceLayout& layout) {
        return layout.size * static_cast<std::int64_t>(sizeof(T)) <= device.status().shared_bytes;
    }
    // (chains, K) of the chains' gradients.
    void download_gradient(Device& device, T* to, std::int64_t n_chains) const {
        const std::size_t dim = static_cast<std::size_t>(launch.plan.dim);
        device.download_beside(to, dim * sizeof(T), gradient_.data(), static_cast<std::size_t>(launch.row) * sizeof(T),
                               dim * sizeof(T), static_cast<std::size_t>(n_chains));
    }

    ChainLaunch<T> launch;
    DeviceVector<DeviceChain> chains;

private:
    void send_collapse(Device& device, const std::vector<FlatCollapse>& collapse, std::int64_t n_chains) {
        const FlatCollapse& shape = collapse.front();
        std::vector<FlatCollapseGroup> groups;
        std::vector<double> deviations;
        for (const FlatCollapse& one : collapse) {
            groups.insert(groups.end(), one.groups.begin(), one.groups.end());
            deviations.insert(deviations.end(), one.deviation.begin(), one.deviation.end());
        }
        groups_ = DeviceVector<FlatCollapseGroup>(device, groups);
        sources_ = DeviceVector<int>(device, shape.sources);
        indices_ = DeviceVector<int>(device, shape.indices);
        group_deviation_ = DeviceVector<double>(device, deviations);
        kept_ = DeviceVector<double>(device, n_chains * (shape.factor_size + shape.alpha_size));
        launch.collapse = {.n_features = shape.n_features,
                           .n_groups = static_cast<int>(shape.groups.size()),
                           .factor_size = shape.factor_size,
                           .alpha_size = shape.alpha_size,
                           .groups = groups_.data(),
                           .sources = sources_.data(),
                           .indices = indices_.data(),
                           .deviation = group_deviation_.data(),
                           .kept = kept_.data(),
                           .deviations = static_cast<int>(shape.deviation.size())};
    }

    DeviceVector<T> variance_, step_factor_, workspace_, theta_, gradient_, momentum_;
    DeviceVector<double> constants_;
    DeviceVector<FlatCollapseGroup> groups_;
    DeviceVector<int> sources_, indices_;
    DeviceVector<double> group_deviation_, kept_;
};

// Chains of one model, all at the same step: each a block, or few that many blocks share.
template <class T>
class DeviceRun {
public:
    // A seed and the sum of the row weights for each data set; see DeviceModel::sample(). Where theta stays on the
    // device, take_theta() has it.
    DeviceRun(Device& device, const DevicePlan<T>& plan, const RunConfig& config,
              const std::vector<std::uint64_t>& seeds, const RunBuffers<T>& buffers, bool theta_stays,
              const std::vector<FlatCollapse>& collapse, const std::vector<double>& weights, int threads)
        : device_(device),
          config_(config),
          out_(buffers),
          threads_(threads),
          memory_(device, plan, std::ssize(seeds), config.chains, buffers.prior_variance, buffers.step_factor,
                  buffers.init, config.persistence > 0.0, collapse),
          launch_(memory_.launch),
          noise_(device, plan, config, weights),
          seeds_(device, seeds),
          batches_(device, std::max<std::int64_t>(1, config.chains * max_batches_of(config))),
          draws_(device, config, plan.dim, theta_stays),
          chains_(static_cast<std::size_t>(config.chains)),
          schedules_(static_cast<std::size_t>(config.chains), Schedule(config, launch_.dim)) {
        launch_.kernel = config.kernel;
        launch_.persistence = config.persistence;
        launch_.adapt_window = config.adapt_window;
        launch_.noise = noise_.view();
        launch_.seeds = seeds_.data();
        launch_.thin = config.thin;
        launch_.max_batches = static_cast<int>(max_batches_of(config));
        launch_.batches = batches_.data();
        if (shares_evaluations(config, plan)) slabs_.emplace(device, launch_, config.chains, config.coarse_gradient);
    }

    bool run(const Monitor& monitor) {
        send_progress();
        launch_.start = true;
        launch_.steps = 1;
        launch();
        fetch_chains();
        for (std::size_t c = 0; c < chains_.size(); ++c)
            if (!chains_[c].starts)
                throw std::invalid_argument(
                    "init: the log-likelihood or its gradient is not finite at the starting point of " + name_of(c) +
                    "; start from another point" + (std::is_same_v<T, float> ? " or use dtype=\"float64\"" : ""));
        launch_.start = false;
        while (!schedule().sampling()) {
            launch_.phase = schedule().phase();
            launch_.persistence = schedule().persistence();
            launch_.steps = std::min(schedule().steps_to_event(), piece_);
            const bool at_event = launch_.steps == schedule().steps_to_event();
            timed([&] { launch(); });
            advance(launch_.steps);
            fetch_chains();
            take_over(at_event);
            if (!keep_on(monitor)) return finish(false);
        }
        return sample(monitor);
    }

    DeviceVector<T> take_theta() { return draws_.take_theta(); }

private:
    using Piece = typename DrawBuffers<T>::Piece;

    const Schedule& schedule() const { return schedules_.front(); }

    static std::int64_t max_batches_of(const RunConfig& config) {
        std::int64_t batches = 0;
        for (const Phase& phase : config.warmup)
            if (phase.first_look > 0)
                batches = std::max(batches, phase.steps / (phase.first_look / batches_to_first_look) + 1);
        return batches;
    }

    std::string name_of(std::size_t c) const {
        const auto of_set = static_cast<std::size_t>(launch_.chains_of_set);
        const std::string chain = "chain " + std::to_string(c % of_set);
        return schedules_.size() == of_set ? chain : chain + " of data set " + std::to_string(c / of_set);
    }

    void launch() {
        launch_.first_step = step_;
        if (slabs_)
            slabs_->launch(device_, launch_, threads_);
        else
            device_.launch(launch_, static_cast<int>(config_.chains), threads_);
    }
    void advance(std::int64_t steps) { step_ += steps; }

    // Pieces of about a fifth of a second, so that progress, Ctrl-C and a display's watchdog never wait long.
    template <class Work>
    void timed(const Work& work) {
        using Clock = std::chrono::steady_clock;
        const auto begin = Clock::now();
        work();
        device_.wait();
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        constexpr double wanted = 0.2;
        const double factor = std::clamp(wanted / std::max(seconds, 1e-6), 0.25, 4.0);
        piece_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(launch_.steps) * factor));
    }

    void send_progress() {
        for (std::size_t c = 0; c < chains_.size(); ++c) {
            chains_[c].progress = schedules_[c].progress();
            chains_[c].batches = std::ssize(schedules_[c].batches());
        }
        memory_.chains.upload(chains_.data());
    }
    void fetch_chains() { memory_.chains.download(chains_.data()); }

    // Copies what the chains recorded to their schedules, and their batches, which stay on the device, only at an event
    // that compares them. Then handles the events of the warm-up as run_schedule() and Chain do.
    void take_over(bool at_event) {
        std::vector<LogLikelihoodBatch> batches;
        if (at_event && launch_.max_batches > 0) {
            batches.resize(static_cast<std::size_t>(batches_.size()));
            batches_.download(batches.data());
        }
        Event event = Event::none;
        for (std::size_t c = 0; c < chains_.size(); ++c) {
            std::vector<LogLikelihoodBatch> own;
            if (!batches.empty()) {
                const auto first = batches.begin() + static_cast<std::int64_t>(c) * launch_.max_batches;
                own.assign(first, first + chains_[c].batches);
            }
            event = schedules_[c].take_over(chains_[c].progress, std::move(own));
        }
        bool end = true, stable = false;
        switch (event) {
            case Event::none: return;
            case Event::look: {
                if (schedule().phase().travel > 0.0) {
                    end = have_travelled() || schedule().phase_is_over();
                    break;
                }
                stable = all_sets_stable();
                end = stable || schedule().phase_is_over();
                if (end) out_.warmup_stable[schedule().phase_index()] = stable;
                break;
            }
            case Event::phase_end: break;
        }
        const bool shares = stable && schedule().phase().superchains > 0;
        const auto of_set = static_cast<std::size_t>(launch_.chains_of_set);
        for (std::size_t first = 0; first < schedules_.size(); first += of_set) {
            std::optional<double> log_step;
            if (shares) log_step = shared_log_step(batches_of_set(first));
            for (std::size_t c = first; c < first + of_set; ++c)
                end ? end_phase(c, log_step) : schedules_[c].after_look();
        }
        if (end) send_progress();
    }

    bool have_travelled() const {
        return std::all_of(schedules_.begin(), schedules_.end(), [](const Schedule& s) { return s.has_travelled(); });
    }

    // Chains are compared with those on the same data.
    bool all_sets_stable() const {
        const auto of_set = static_cast<std::size_t>(launch_.chains_of_set);
        for (std::size_t first = 0; first < schedules_.size(); first += of_set)
            if (!is_stable(batches_of_set(first), schedule().phase().superchains)) return false;
        return true;
    }
    // Of the data set whose first chain is this one.
    BatchesOfChains batches_of_set(std::size_t first) const {
        BatchesOfChains batches;
        for (std::size_t c = first; c < first + static_cast<std::size_t>(launch_.chains_of_set); ++c)
            batches.push_back(&schedules_[c].batches());
        return batches;
    }

    void end_phase(std::size_t c, std::optional<double> log_step) {
        Schedule& schedule = schedules_[c];
        const std::int64_t phase = schedule.phase_index();
        const std::size_t at = c * config_.warmup.size() + static_cast<std::size_t>(phase);
        out_.warmup_acceptance[at] = schedule.phase_acceptance();
        if (c == 0) out_.warmup_steps[phase] = schedule.phase_steps();
        schedule.next_phase(log_step);
        out_.warmup_step_size[at] = schedule.step_size();
    }

    bool keep_on(const Monitor& monitor) const {
        Progress progress;
        progress.steps_done = step_ * config_.chains;
        progress.steps_total = progress.steps_done + (schedule().warmup_steps_left() + config_.draws * config_.thin -
                                                      (schedule().sampling() ? step_ - first_sampling_step_ : 0)) *
                                                         config_.chains;
        std::int64_t accepted = 0;
        for (const DeviceChain& chain : chains_) accepted += chain.accepted;
        progress.acceptance_rate =
            static_cast<double>(accepted) / static_cast<double>(std::max<std::int64_t>(1, progress.steps_done));
        return monitor(progress);
    }

    // While a piece runs, the draws of the one before are copied out.
    bool sample(const Monitor& monitor) {
        first_sampling_step_ = step_;
        launch_.sampling = true;
        launch_.phase = config_.sampling;
        launch_.persistence = config_.persistence;
        const std::int64_t last_step = step_ + config_.draws * config_.thin;
        std::int64_t draws = 0;
        std::optional<Piece> copied;
        bool going = true;
        for (int turn = 0; going && step_ < last_step; turn = 1 - turn) {
            const std::int64_t since = step_ - first_sampling_step_ - draws * config_.thin;
            launch_.steps = std::min({piece_, last_step - step_, draws_.room() * config_.thin - since});
            const Piece piece = draws_.piece(turn, draws, (since + launch_.steps) / config_.thin);
            draws_.receive(piece, launch_);
            timed([&] {
                launch();
                if (copied) draws_.copy_out(device_, *copied, out_);
            });
            copied = piece;
            draws += piece.draws;
            advance(launch_.steps);
            fetch_chains();
            going = keep_on(monitor);
        }
        if (copied) draws_.copy_out(device_, *copied, out_);
        std::fill_n(out_.draws_done, config_.chains, draws);
        return finish(step_ == last_step);
    }

    bool finish(bool completed) {
        for (std::size_t c = 0; c < chains_.size(); ++c) {
            out_.nonfinite[c] = chains_[c].nonfinite;
            out_.warmup_nonfinite[c] = chains_[c].warmup_nonfinite;
        }
        return completed;
    }

    Device& device_;
    const RunConfig& config_;
    const RunBuffers<T>& out_;
    int threads_;
    DeviceChains<T> memory_;
    ChainLaunch<T>& launch_;
    std::optional<SlabMemory<T>> slabs_;  // where blocks share evaluations
    VarianceMemory<T> noise_;
    DeviceVector<std::uint64_t> seeds_;
    DeviceVector<LogLikelihoodBatch> batches_;
    DrawBuffers<T> draws_;
    std::vector<DeviceChain> chains_;
    std::vector<Schedule> schedules_;
    std::int64_t step_ = 0, first_sampling_step_ = 0;
    std::int64_t piece_ = 64;
};

}  // namespace patrac::PATRAC_LEVEL
