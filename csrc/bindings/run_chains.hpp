// A run of chains as Python calls it: buffers, progress, Ctrl-C and the dictionary of results.
#pragma once

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/interpreter.hpp"
#include "patrac.hpp"

namespace patrac::bindings {

// Calls Python from a run, which does not hold the GIL. Ctrl-C, pressed once or more, ends the run and keeps its draws;
// other exceptions are rethrown after it.
class PythonCalls {
public:
    bool stopped() const { return stopped_; }
    // Ends the run for an exception that Python raised, with the GIL, or null.
    void stop(const std::exception_ptr& raised) {
        stopped_ = true;
        if (!raised) return;
        try {
            std::rethrow_exception(raised);
        } catch (const py::error_already_set& error) {
            if (!error.matches(PyExc_KeyboardInterrupt)) error_ = raised;
        } catch (...) {
            error_ = raised;
        }
    }
    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

protected:
    // Returns what body() does with the GIL, or false where it raised or the interpreter ends.
    template <class Body>
    bool guarded(const Body& body) {
        if (is_ending()) {
            stopped_ = true;
            return false;
        }
        const HeldGil gil;
        try {
            return body();
        } catch (...) {
            stop(std::current_exception());
            return false;
        }
    }

private:
    bool stopped_ = false;
    std::exception_ptr error_;
};

// Called about every 50 ms: pending signals first, then the progress callback, unless it is None.
class PythonMonitor : public PythonCalls {
public:
    explicit PythonMonitor(py::object progress) : progress_(std::move(progress)) {}

    bool operator()(const Progress& progress) {
        return guarded([&] {
            check_signals();
            if (!stopped() && !progress_.is_none())
                call_python(progress_, progress.steps_done, progress.steps_total, progress.acceptance_rate);
            return !stopped();
        });
    }

private:
    py::object progress_;
};

// Whether the draws so far are enough: is_enough(result), or an exception.
class PythonEarlyEnd : public PythonCalls {
public:
    PythonEarlyEnd(py::object is_enough, py::dict result)
        : is_enough_(std::move(is_enough)), result_(std::move(result)) {}

    bool operator()() {
        return guarded([&] { return static_cast<bool>(py::bool_(call_python(is_enough_, result_))); }) || stopped();
    }

private:
    py::object is_enough_;
    py::dict result_;
};

// Blocks (first, A, B) of a rotation.
using RotationArgument = std::vector<std::tuple<py::ssize_t, Array<double>, Array<double>>>;

// The blocks of a rotation of `dim` coordinates; the arrays outlive them.
inline std::vector<RotationBlock> rotation_of(const RotationArgument& given, py::ssize_t dim) {
    std::vector<RotationBlock> blocks;
    py::ssize_t next = 0;
    for (const auto& [first, row_axes, column_axes] : given) {
        require(row_axes.ndim() == 2 && column_axes.ndim() == 2 && row_axes.shape(0) == row_axes.shape(1) &&
                    column_axes.shape(0) == column_axes.shape(1) && first == next,
                "rotation: square factors of adjoining blocks");
        blocks.push_back({first, row_axes.shape(0), column_axes.shape(0), row_axes.data(), column_axes.data()});
        next += row_axes.shape(0) * column_axes.shape(0);
    }
    require(blocks.empty() || next == dim, "rotation: as many coordinates as the chain has");
    return blocks;
}

// run(config, buffers, monitor) is called without the GIL. Where `theta_stays` on a device, the result is without it.
// is_enough(result), if it is not None, is called as EarlyEnd says.
template <class T, class Run>
py::dict run_chains(const Run& run, py::ssize_t dim, RunConfig config, const Array<T>& init,
                    const Array<double>& prior_variance, py::object progress, py::object is_enough = py::none(),
                    const std::optional<Array<double>>& step_factor = {}, bool theta_stays = false,
                    std::vector<RotationBlock> rotation = {}) {
    const py::ssize_t draws = config.draws, phases = std::ssize(config.warmup);
    require(init.ndim() == 2 && init.shape(1) == dim && prior_variance.size() >= dim, "init or prior_variance shape");
    require(!step_factor || step_factor->size() == prior_variance.size(), "step_factor shape");
    require(!config.scales.sampled() || std::ssize(config.scales.group) == dim, "a group for each parameter");
    const py::ssize_t chains = config.chains = init.shape(0);

    Array<T> theta({theta_stays ? 0 : chains, draws, dim});
    Array<double> log_likelihood({chains, draws}), log_prior({chains, draws});
    Array<double> acceptance({chains, draws}), step_size({chains, draws});
    // One variance for all outputs has no axis of its own.
    const py::ssize_t n_variances = config.variance.count();
    Array<double> variance(n_variances > 1 ? std::vector<py::ssize_t>{chains, draws, n_variances}
                                           : std::vector<py::ssize_t>{n_variances * chains, draws});
    Array<double> prior_scales({config.scales.sampled() ? chains : 0, draws, config.scales.groups});
    Array<double> warmup_acceptance({chains, phases}), warmup_step_size({chains, phases});
    Array<std::int64_t> nonfinite(chains), warmup_nonfinite(chains), draws_done(chains);
    Array<std::int64_t> warmup_steps(phases), warmup_stable(phases);
    for (auto* counts : {&nonfinite, &warmup_nonfinite, &draws_done}) std::fill_n(counts->mutable_data(), chains, 0);
    std::fill_n(warmup_steps.mutable_data(), phases, 0);
    std::fill_n(warmup_stable.mutable_data(), phases, -1);
    std::fill_n(warmup_acceptance.mutable_data(), chains * phases, std::nan(""));
    std::fill_n(warmup_step_size.mutable_data(), chains * phases, std::nan(""));

    RunBuffers<T> buffers;
    buffers.init = init.data();
    buffers.prior_variance = prior_variance.data();
    if (step_factor) buffers.step_factor = step_factor->data();
    buffers.rotation = std::move(rotation);
    buffers.theta = theta_stays ? nullptr : theta.mutable_data();
    buffers.log_likelihood = log_likelihood.mutable_data();
    buffers.log_prior = log_prior.mutable_data();
    buffers.acceptance_rate = acceptance.mutable_data();
    buffers.step_size = step_size.mutable_data();
    if (config.variance.sampled()) buffers.variance = variance.mutable_data();
    if (config.scales.sampled()) buffers.prior_scales = prior_scales.mutable_data();
    buffers.warmup_acceptance = warmup_acceptance.mutable_data();
    buffers.warmup_step_size = warmup_step_size.mutable_data();
    buffers.warmup_steps = warmup_steps.mutable_data();
    buffers.warmup_stable = warmup_stable.mutable_data();
    buffers.nonfinite = nonfinite.mutable_data();
    buffers.warmup_nonfinite = warmup_nonfinite.mutable_data();
    buffers.draws_done = draws_done.mutable_data();
    require(config.states.empty() || std::ssize(config.states) == chains, "a state for each chain");
    std::vector<std::string> states;
    buffers.states = &states;

    py::dict result;
    if (!theta_stays) result["theta"] = theta;
    result["log_likelihood"] = log_likelihood;
    result["log_prior"] = log_prior;
    result["acceptance_rate"] = acceptance;
    result["step_size"] = step_size;
    if (config.variance.sampled()) result["variance"] = variance;
    if (config.scales.sampled()) result["prior_scales"] = prior_scales;
    result["warmup_acceptance_rate"] = warmup_acceptance;
    result["warmup_step_size"] = warmup_step_size;
    result["warmup_steps"] = warmup_steps;
    result["warmup_stable"] = warmup_stable;
    result["nonfinite"] = nonfinite;
    result["warmup_nonfinite"] = warmup_nonfinite;
    result["draws_done"] = draws_done;
    result["completed"] = true;

    require(config.early_end.every == 0 || !is_enough.is_none(), "is_enough");
    PythonEarlyEnd early_end(std::move(is_enough), result);
    config.early_end.is_enough = std::ref(early_end);
    PythonMonitor monitor(std::move(progress));
    bool completed = false;
    try {
        // The run touches only the arrays above, which this frame owns, so no Python object is reached without the GIL;
        // Python reads them while all chains wait.
        const NativeCall native;
        try {
            completed = run(config, buffers, std::ref(monitor)) && !early_end.stopped();
        } catch (const Interrupted&) {  // at the starting points
            monitor.stop(native.raised());
        }
    } catch (const std::bad_alloc& failure) {
        raise_memory_error("a run of " + std::to_string(chains) + " chains of " + std::to_string(dim) + " parameters",
                           failure);
    }
    monitor.rethrow();
    early_end.rethrow();
    result["completed"] = completed;
    py::list at_end;
    for (const std::string& state : states) at_end.append(py::bytes(state));
    result["states"] = at_end;
    return result;
}

}  // namespace patrac::bindings
