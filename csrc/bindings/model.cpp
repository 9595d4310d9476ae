// Bindings of the model: construction, batched evaluation, prediction and sampling.
#include "bindings.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "../patrac.hpp"
#include "arrays.hpp"

namespace patrac::bindings {
namespace {

const std::map<std::string, Activation> activations = {{"tanh", Activation::tanh},
                                                       {"relu", Activation::relu},
                                                       {"gelu", Activation::gelu},
                                                       {"silu", Activation::silu},
                                                       {"sigmoid", Activation::sigmoid}};
const std::map<std::string, LikelihoodKind> likelihoods = {{"gaussian", LikelihoodKind::gaussian},
                                                           {"categorical", LikelihoodKind::categorical},
                                                           {"bernoulli", LikelihoodKind::bernoulli}};
const std::map<std::string, KernelKind> kernels = {{"pcn", KernelKind::pcn},
                                                   {"pcnl", KernelKind::pcnl},
                                                   {"mgrad", KernelKind::mgrad},
                                                   {"elliptical_slice", KernelKind::elliptical_slice},
                                                   {"exact", KernelKind::exact}};

template <class Enum>
Enum named(const std::map<std::string, Enum>& names, const std::string& name) {
    const auto found = names.find(name);
    require(found != names.end(), ("unknown name '" + name + "'").c_str());
    return found->second;
}

using Arrays = std::vector<Array<double>>;
using Masks = std::vector<Array<bool>>;

Network make_network(const std::string& activation, const Arrays& weights, const Arrays& biases,
                     const Masks* weight_masks, const Masks* bias_masks) {
    Network network;
    network.activation = named(activations, activation);
    require(!weights.empty() && weights.size() == biases.size(), "one weight matrix and bias vector for each layer");
    require(!weight_masks || (weight_masks->size() == weights.size() && bias_masks->size() == weights.size()),
            "one mask for each weight matrix and bias vector");
    for (std::size_t l = 0; l < weights.size(); ++l) {
        require(weights[l].ndim() == 2 && biases[l].ndim() == 1 && biases[l].shape(0) == weights[l].shape(0),
                "weights (N_l, N_l-1) and biases (N_l,)");
        require(l == 0 || weights[l].shape(1) == weights[l - 1].shape(0), "layers that follow on each other");
        Layer layer;
        layer.n_out = weights[l].shape(0);
        layer.n_in = weights[l].shape(1);
        layer.weights = to_vector(weights[l]);
        layer.biases = to_vector(biases[l]);
        layer.weight_mask.assign(layer.weights.size(), 0);
        layer.bias_mask.assign(layer.biases.size(), 0);
        if (weight_masks) {
            const auto& weight_mask = (*weight_masks)[l];
            const auto& bias_mask = (*bias_masks)[l];
            require(weight_mask.size() == weights[l].size() && bias_mask.size() == biases[l].size(), "mask shape");
            layer.weight_mask.assign(weight_mask.data(), weight_mask.data() + weight_mask.size());
            layer.bias_mask.assign(bias_mask.data(), bias_mask.data() + bias_mask.size());
        }
        network.layers.push_back(std::move(layer));
    }
    return network;
}

// Keeps a Python object until the last copy of the pointer is gone, in whatever thread that is.
std::shared_ptr<const void> hold(const py::object& object) {
    return {new py::object(object), [](const void* held) {
                const py::gil_scoped_acquire gil;
                delete static_cast<const py::object*>(held);
            }};
}

py::dict report_dict(const LayerReport& report) {
    py::dict d;
    d["nodes"] = report.nodes;
    d["varying"] = report.varying;
    d["varying_sources"] = report.varying_sources;
    d["constant_sources"] = report.constant_sources;
    d["offsets"] = report.offsets;
    d["bayesian"] = report.bayesian;
    d["gradient_block"] = report.gradient_block;
    return d;
}

// Calls Python about every 50 ms: pending signals first, then the progress callback, unless it is None.
class PythonMonitor {
public:
    explicit PythonMonitor(py::object progress) : progress_(std::move(progress)) {}

    bool operator()(const Progress& progress) {
        const py::gil_scoped_acquire gil;
        try {
            if (PyErr_CheckSignals() != 0) throw py::error_already_set();
            if (!stopped_ && !progress_.is_none())
                progress_(progress.steps_done, progress.steps_total, progress.acceptance_rate);
        } catch (py::error_already_set& error) {
            // Ctrl-C, pressed once or more, ends the run and keeps its draws; any other exception is the caller's.
            if (!error.matches(PyExc_KeyboardInterrupt)) error_ = std::current_exception();
            stopped_ = true;
        }
        return !stopped_;
    }
    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

private:
    py::object progress_;
    bool stopped_ = false;
    std::exception_ptr error_;
};

// run(config, buffers, monitor) is called without the GIL.
template <class T, class Run>
py::dict run_chains(const Run& run, py::ssize_t dim, RunConfig config, const Array<T>& init,
                    const Array<double>& prior_variance, py::object progress) {
    const py::ssize_t draws = config.draws, phases = std::ssize(config.warmup);
    require(init.ndim() == 2 && init.shape(1) == dim && prior_variance.size() == dim, "init or prior_variance shape");
    const py::ssize_t chains = config.chains = init.shape(0);

    Array<T> theta({chains, draws, dim});
    Array<double> log_likelihood({chains, draws}), log_prior({chains, draws});
    Array<double> acceptance({chains, draws}), step_size({chains, draws});
    Array<double> variance({config.variance.sampled ? chains : 0, draws});
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
    buffers.theta = theta.mutable_data();
    buffers.log_likelihood = log_likelihood.mutable_data();
    buffers.log_prior = log_prior.mutable_data();
    buffers.acceptance_rate = acceptance.mutable_data();
    buffers.step_size = step_size.mutable_data();
    if (config.variance.sampled) buffers.variance = variance.mutable_data();
    buffers.warmup_acceptance = warmup_acceptance.mutable_data();
    buffers.warmup_step_size = warmup_step_size.mutable_data();
    buffers.warmup_steps = warmup_steps.mutable_data();
    buffers.warmup_stable = warmup_stable.mutable_data();
    buffers.nonfinite = nonfinite.mutable_data();
    buffers.warmup_nonfinite = warmup_nonfinite.mutable_data();
    buffers.draws_done = draws_done.mutable_data();

    PythonMonitor monitor(std::move(progress));
    bool completed = false;
    {
        // The run touches only the arrays above, which this frame owns, so no Python object is reached without the GIL.
        const py::gil_scoped_release release;
        completed = run(config, buffers, std::ref(monitor));
    }
    monitor.rethrow();

    py::dict result;
    result["theta"] = theta;
    result["log_likelihood"] = log_likelihood;
    result["log_prior"] = log_prior;
    result["acceptance_rate"] = acceptance;
    result["step_size"] = step_size;
    if (config.variance.sampled) result["variance"] = variance;
    result["warmup_acceptance_rate"] = warmup_acceptance;
    result["warmup_step_size"] = warmup_step_size;
    result["warmup_steps"] = warmup_steps;
    result["warmup_stable"] = warmup_stable;
    result["nonfinite"] = nonfinite;
    result["warmup_nonfinite"] = warmup_nonfinite;
    result["draws_done"] = draws_done;
    result["completed"] = completed;
    return result;
}

template <class T>
void bind_model_of(py::module_& m, const char* name) {
    py::class_<Model<T>>(m, name)
        .def(py::init([](const std::string& activation, const Arrays& weights, const Arrays& biases,
                         const Masks& weight_masks, const Masks& bias_masks,
                         const std::optional<std::pair<Arrays, Arrays>>& companion, const std::string& likelihood,
                         const Array<double>& variance, const py::array_t<T>& inputs, const Array<double>& targets,
                         const Array<double>& row_weights, const std::string& level, bool in_place) {
                 const Network network = make_network(activation, weights, biases, &weight_masks, &bias_masks);
                 std::optional<Network> fixed;
                 if (companion) fixed = make_network(activation, companion->first, companion->second, nullptr, nullptr);
                 require(
                     !fixed || (fixed->n_inputs() == network.n_inputs() && fixed->n_outputs() == network.n_outputs()),
                     "companion of the same inputs and outputs");
                 require(inputs.ndim() == 2 && inputs.shape(1) == network.n_inputs(), "inputs shape");
                 require(row_weights.size() == inputs.shape(0), "row_weights shape");
                 constexpr py::ssize_t size = sizeof(T);
                 require(inputs.strides(0) % size == 0 && inputs.strides(1) % size == 0, "aligned inputs");
                 const DataView<T> data{.n_rows = inputs.shape(0),
                                        .inputs = inputs.data(),
                                        .row_step = inputs.strides(0) / size,
                                        .column_step = inputs.strides(1) / size,
                                        .targets = targets.data(),
                                        .row_weights = row_weights.data(),
                                        .owner = in_place ? hold(inputs) : nullptr};
                 const Likelihood spec{named(likelihoods, likelihood), to_vector(variance)};
                 require(targets.size() == inputs.shape(0) * targets_per_row(spec.kind, network.n_outputs()),
                         "targets shape");
                 require(spec.kind != LikelihoodKind::gaussian || variance.size() == network.n_outputs(),
                         "variance shape");
                 // The arguments are held by the caller; the model copies what it keeps, or holds the inputs.
                 const py::gil_scoped_release release;
                 return make_model<T>(network, fixed, spec, data, level);
             }),
             py::kw_only(), py::arg("activation"), py::arg("weights"), py::arg("biases"), py::arg("weight_masks"),
             py::arg("bias_masks"), py::arg("companion"), py::arg("likelihood"), py::arg("variance"),
             py::arg("inputs").noconvert(), py::arg("targets").noconvert(), py::arg("row_weights").noconvert(),
             py::arg("level"), py::arg("in_place"))
        .def_property_readonly("dim", &Model<T>::dim)
        .def_property_readonly("tile_rows", &Model<T>::tile_rows)
        .def_property_readonly("cached_bytes", &Model<T>::cached_bytes)
        .def_property_readonly("level", &Model<T>::level)
        .def_property_readonly("layers",
                               [](const Model<T>& model) {
                                   py::list layers;
                                   for (const LayerReport& report : model.layer_reports())
                                       layers.append(report_dict(report));
                                   return layers;
                               })
        .def(
            "log_likelihood",
            [](const Model<T>& model, const Array<T>& theta, std::int64_t threads) {
                require(theta.ndim() == 2 && theta.shape(1) == model.dim(), "theta shape");
                Array<double> result(theta.shape(0));
                double* const out = result.mutable_data();
                {
                    const py::gil_scoped_release release;  // theta and result are held by this frame
                    model.evaluate(theta.data(), theta.shape(0), out, nullptr, threads);
                }
                return result;
            },
            py::arg("theta").noconvert(), py::arg("threads"))
        .def(
            "log_likelihood_and_grad",
            [](const Model<T>& model, const Array<T>& theta, std::int64_t threads) {
                require(theta.ndim() == 2 && theta.shape(1) == model.dim(), "theta shape");
                Array<double> value(theta.shape(0));
                Array<T> gradient({theta.shape(0), theta.shape(1)});
                double* const out = value.mutable_data();
                T* const slope = gradient.mutable_data();
                {
                    const py::gil_scoped_release release;  // all three arrays are held by this frame
                    model.evaluate(theta.data(), theta.shape(0), out, slope, threads);
                }
                return py::make_tuple(value, gradient);
            },
            py::arg("theta").noconvert(), py::arg("threads"))
        .def(
            "predict",
            [](const Model<T>& model, const Array<T>& theta, const Array<T>& inputs, std::int64_t threads) {
                require(theta.ndim() == 2 && theta.shape(1) == model.dim() && inputs.ndim() == 2,
                        "theta or inputs shape");
                Array<T> f({theta.shape(0), inputs.shape(0), static_cast<py::ssize_t>(model.n_outputs())});
                T* const out = f.mutable_data();
                {
                    const py::gil_scoped_release release;  // all three arrays are held by this frame
                    model.predict(theta.data(), theta.shape(0), inputs.data(), inputs.shape(0), out, threads);
                }
                return f;
            },
            py::arg("theta").noconvert(), py::arg("inputs").noconvert(), py::arg("threads"))
        .def_property_readonly("hidden_dim", &Model<T>::hidden_dim)
        .def(
            "collapsed",
            [](const Model<T>& model, const Array<T>& theta, const Array<double>& prior_variance, bool with_gradient) {
                require(theta.ndim() == 2 && theta.shape(1) == model.hidden_dim() &&
                            prior_variance.size() == model.dim() && model.hidden_dim() < model.dim(),
                        "theta or prior_variance shape");
                Array<double> value(theta.shape(0));
                Array<T> gradient({with_gradient ? theta.shape(0) : 0, theta.shape(1)});
                double* const out = value.mutable_data();
                T* const slope = with_gradient ? gradient.mutable_data() : nullptr;
                {
                    const py::gil_scoped_release release;  // all four arrays are held by this frame
                    model.evaluate_collapsed(theta.data(), theta.shape(0), prior_variance.data(), out, slope);
                }
                return py::make_tuple(value, gradient);
            },
            py::arg("theta").noconvert(), py::arg("prior_variance").noconvert(), py::arg("with_gradient"))
        .def(
            "log_acceptance",
            [](const Model<T>& model, const Array<T>& from, const Array<T>& to, const Array<double>& prior_variance,
               const std::string& kernel, double step_size, bool collapse) {
                const py::ssize_t dim = collapse ? model.hidden_dim() : model.dim();
                require(from.size() == dim && to.size() == dim && prior_variance.size() == model.dim(), "theta shape");
                return model.log_acceptance(from.data(), to.data(), prior_variance.data(), named(kernels, kernel),
                                            step_size, collapse);
            },
            py::arg("from_theta").noconvert(), py::arg("to_theta").noconvert(), py::arg("prior_variance"),
            py::arg("kernel"), py::arg("step_size"), py::arg("collapse") = false)
        .def(
            "sample",
            [](const Model<T>& model, const RunConfig& config, const Array<T>& init,
               const Array<double>& prior_variance, py::object progress) {
                const auto run = [&model](auto&&... args) { return model.sample(args...); };
                return run_chains<T>(run, model.dim(), config, init, prior_variance, std::move(progress));
            },
            py::arg("config"), py::arg("init").noconvert(), py::arg("prior_variance").noconvert(), py::arg("progress"));
}

template <class T>
void bind_sample_quadratic_of(py::module_& m, const char* name) {
    m.def(
        name,
        [](double constant, const Array<double>& slope, const Array<double>& matrix, const Array<double>& to_theta,
           double terms, double variance, const RunConfig& config, const Array<T>& init,
           const Array<double>& prior_variance, py::object progress, const std::string& level) {
            const py::ssize_t square = slope.size() * slope.size();
            require(to_theta.size() == 0 ? matrix.size() == square : matrix.size() == slope.size(), "matrix shape");
            require(to_theta.size() == 0 || to_theta.size() == square, "to_theta shape");
            const Quadratic form{constant, to_vector(slope), to_vector(matrix), to_vector(to_theta), terms, variance};
            const auto run = [&](auto&&... args) { return sample_quadratic<T>(form, args..., level); };
            return run_chains<T>(run, slope.size(), config, init, prior_variance, std::move(progress));
        },
        py::kw_only(), py::arg("constant"), py::arg("slope"), py::arg("matrix"), py::arg("to_theta"), py::arg("terms"),
        py::arg("variance"), py::arg("config"), py::arg("init").noconvert(), py::arg("prior_variance").noconvert(),
        py::arg("progress"), py::arg("level"));
}

}  // namespace

void bind_model(py::module_& m) {
    py::class_<Phase>(m, "Phase")
        .def(py::init([](std::int64_t steps, bool adapt, double accept_low, double accept_high, bool accept_all,
                         bool average, double target, std::int64_t first_look) {
                 return Phase{steps, adapt, accept_low, accept_high, accept_all, average, target, first_look};
             }),
             py::kw_only(), py::arg("steps"), py::arg("adapt"), py::arg("accept_low"), py::arg("accept_high"),
             py::arg("accept_all"), py::arg("average"), py::arg("target"), py::arg("first_look"));
    py::class_<SampledVariance>(m, "SampledVariance")
        .def(py::init(
                 [](double shape, double rate, double initial) { return SampledVariance{true, shape, rate, initial}; }),
             py::kw_only(), py::arg("shape"), py::arg("rate"), py::arg("initial"));
    py::class_<RunConfig>(m, "RunConfig")
        .def(py::init([](const std::string& kernel, bool collapse, double persistence,
                         const std::optional<SampledVariance>& variance, double step_size, double step_size_max,
                         std::vector<Phase> warmup, const Phase& sampling, std::int64_t draws, std::int64_t thin,
                         std::uint64_t seed, std::int64_t threads) {
                 RunConfig config;
                 config.kernel = named(kernels, kernel);
                 config.collapse = collapse;
                 config.persistence = persistence;
                 if (variance) config.variance = *variance;
                 config.step_size = step_size;
                 config.step_size_max = step_size_max;
                 config.warmup = std::move(warmup);
                 config.sampling = sampling;
                 config.draws = draws;
                 config.thin = thin;
                 config.seed = seed;
                 config.threads = threads;
                 return config;
             }),
             py::kw_only(), py::arg("kernel"), py::arg("collapse"), py::arg("persistence"), py::arg("variance"),
             py::arg("step_size"), py::arg("step_size_max"), py::arg("warmup"), py::arg("sampling"), py::arg("draws"),
             py::arg("thin"), py::arg("seed"), py::arg("threads"));
    bind_model_of<float>(m, "Model32");
    bind_model_of<double>(m, "Model64");
    bind_sample_quadratic_of<float>(m, "sample_quadratic32");
    bind_sample_quadratic_of<double>(m, "sample_quadratic64");
}

}  // namespace patrac::bindings
