// Bindings of the model: construction, batched evaluation, prediction and sampling.
#include "bindings/bindings.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/data_arguments.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/run_chains.hpp"
#include "patrac.hpp"

namespace patrac::bindings {
namespace {

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

// The noise variances (rows of theta, m), or null for the model's own.
template <class T>
const double* variance_of_rows(const Model<T>& model, const Array<T>& theta,
                               const std::optional<Array<double>>& variance) {
    if (!variance) return nullptr;
    require(variance->ndim() == 2 && variance->shape(0) == theta.shape(0) && variance->shape(1) == model.n_outputs(),
            "variance shape");
    return variance->data();
}

template <class T>
std::int64_t hidden_dim(const Model<T>& model) {
    return std::ssize(model.hidden_entries());
}

template <class T>
void bind_model_of(py::module_& m, const char* name) {
    py::class_<Model<T>, std::shared_ptr<Model<T>>>(m, name)
        .def(py::init([](const ModelSpec& spec, const py::array& inputs, const Array<double>& targets,
                         const Array<double>& row_weights, const std::string& level, bool in_place) {
                 DataView<T> data = data_view<T>(spec, targets, row_weights);
                 set_inputs(spec, inputs, in_place, data);
                 // The arguments are held by the caller; the model copies what it keeps, or holds the inputs.
                 return without_gil(
                     [&] { return points_words("a model", data.n_rows, spec.network.n_inputs(), "rows", "inputs"); },
                     [&] { return std::shared_ptr<Model<T>>(make_model<T>(spec, data, level)); });
             }),
             py::arg("spec"), py::kw_only(), py::arg("inputs").noconvert(), py::arg("targets").noconvert(),
             py::arg("row_weights").noconvert(), py::arg("level"), py::arg("in_place"))
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
            [](const Model<T>& model, const Array<T>& theta, std::int64_t threads,
               const std::optional<Array<double>>& variance) {
                require(theta.ndim() == 2 && theta.shape(1) == model.dim(), "theta shape");
                const double* const own = variance_of_rows(model, theta, variance);
                Array<double> result(theta.shape(0));
                double* const out = result.mutable_data();
                // All three arrays are held by this frame.
                without_gil([&] { return points_words("the log-likelihood", theta.shape(0), theta.shape(1)); },
                            [&] { model.evaluate(theta.data(), theta.shape(0), out, nullptr, threads, own); });
                return result;
            },
            py::arg("theta").noconvert(), py::arg("threads"), py::arg("variance").noconvert() = py::none())
        .def(
            "log_likelihood_and_grad",
            [](const Model<T>& model, const Array<T>& theta, std::int64_t threads,
               const std::optional<Array<double>>& variance) {
                require(theta.ndim() == 2 && theta.shape(1) == model.dim(), "theta shape");
                const double* const own = variance_of_rows(model, theta, variance);
                Array<double> value(theta.shape(0));
                Array<T> gradient({theta.shape(0), theta.shape(1)});
                double* const out = value.mutable_data();
                T* const slope = gradient.mutable_data();
                // All four arrays are held by this frame.
                without_gil([&] { return points_words("the gradient", theta.shape(0), theta.shape(1)); },
                            [&] { model.evaluate(theta.data(), theta.shape(0), out, slope, threads, own); });
                return py::make_tuple(value, gradient);
            },
            py::arg("theta").noconvert(), py::arg("threads"), py::arg("variance").noconvert() = py::none())
        .def(
            "predict",
            [](const Model<T>& model, const Array<T>& theta, const Array<T>& inputs, std::int64_t threads) {
                require(theta.ndim() == 2 && theta.shape(1) == model.dim() && inputs.ndim() == 2,
                        "theta or inputs shape");
                Array<T> f({theta.shape(0), inputs.shape(0), static_cast<py::ssize_t>(model.n_outputs())});
                T* const out = f.mutable_data();
                // All three arrays are held by this frame.
                without_gil(
                    [&] { return points_words("predictions", theta.shape(0), inputs.shape(0), "draws", "rows"); },
                    [&] { model.predict(theta.data(), theta.shape(0), inputs.data(), inputs.shape(0), out, threads); });
                return f;
            },
            py::arg("theta").noconvert(), py::arg("inputs").noconvert(), py::arg("threads"))
        .def_property_readonly("hidden_entries",
                               [](const Model<T>& model) {
                                   const std::vector<std::int64_t>& entries = model.hidden_entries();
                                   return Array<std::int64_t>(std::ssize(entries), entries.data());
                               })
        .def(
            "collapsed",
            [](const Model<T>& model, const Array<T>& theta, const Array<double>& prior_variance, bool with_gradient) {
                require(theta.ndim() == 2 && theta.shape(1) == hidden_dim(model) &&
                            prior_variance.size() == model.dim() && hidden_dim(model) < model.dim(),
                        "theta or prior_variance shape");
                Array<double> value(theta.shape(0));
                Array<T> gradient({with_gradient ? theta.shape(0) : 0, theta.shape(1)});
                double* const out = value.mutable_data();
                T* const slope = with_gradient ? gradient.mutable_data() : nullptr;
                // All four arrays are held by this frame.
                without_gil(
                    [&] { return points_words("the marginal likelihood", theta.shape(0), theta.shape(1)); },
                    [&] { model.evaluate_collapsed(theta.data(), theta.shape(0), prior_variance.data(), out, slope); });
                return py::make_tuple(value, gradient);
            },
            py::arg("theta").noconvert(), py::arg("prior_variance").noconvert(), py::arg("with_gradient"))
        .def(
            "log_acceptance",
            [](const Model<T>& model, const Array<T>& from, const Array<T>& to, const Array<double>& prior_variance,
               const std::string& kernel, double step_size, bool collapse,
               const std::optional<Array<double>>& step_factor) {
                const py::ssize_t dim = collapse ? hidden_dim(model) : model.dim();
                require(from.size() == dim && to.size() == dim && prior_variance.size() == model.dim(), "theta shape");
                require(!step_factor || step_factor->size() == model.dim(), "step_factor shape");
                return model.log_acceptance(from.data(), to.data(), prior_variance.data(),
                                            entry_of(kernels, kernel, "kernel").value, step_size, collapse,
                                            step_factor ? step_factor->data() : nullptr);
            },
            py::arg("from_theta").noconvert(), py::arg("to_theta").noconvert(), py::arg("prior_variance"),
            py::arg("kernel"), py::arg("step_size"), py::arg("collapse") = false,
            py::arg("step_factor").noconvert() = py::none())
        .def(
            "sample",
            [](const Model<T>& model, const RunConfig& config, const Array<T>& init,
               const Array<double>& prior_variance, py::object progress, py::object is_enough,
               const std::optional<Array<double>>& step_factor, const RotationArgument& rotation) {
                const auto run = [&model](auto&&... args) { return model.sample(args...); };
                return run_chains<T>(run, model.dim(), config, init, prior_variance, std::move(progress),
                                     std::move(is_enough), step_factor, /*theta_stays=*/false,
                                     rotation_of(rotation, config.collapse ? hidden_dim(model) : model.dim()));
            },
            py::arg("config"), py::arg("init").noconvert(), py::arg("prior_variance").noconvert(), py::arg("progress"),
            py::arg("is_enough") = py::none(), py::arg("step_factor").noconvert() = py::none(),
            py::arg("rotation") = RotationArgument{});
}

template <class T>
void bind_sample_quadratic_of(py::module_& m, const char* name) {
    m.def(
        name,
        [](const Array<double>& constant, const Array<double>& slope, const Array<double>& matrix,
           const Array<double>& to_theta, double terms, const Array<double>& variance,
           const Array<std::int32_t>& output, const RunConfig& config, const Array<T>& init,
           const Array<double>& prior_variance, py::object progress, py::object is_enough, const std::string& level) {
            const py::ssize_t square = slope.size() * slope.size();
            require(to_theta.size() == 0 ? matrix.size() == square : matrix.size() == slope.size(), "matrix shape");
            require(to_theta.size() == 0 || to_theta.size() == square, "to_theta shape");
            require(constant.size() == variance.size() && output.size() == slope.size(), "variance or output shape");
            const Quadratic form{to_vector(constant), to_vector(slope), to_vector(matrix), to_vector(to_theta), terms,
                                 to_vector(variance), to_vector(output)};
            const auto run = [&](auto&&... args) { return sample_quadratic<T>(form, args..., level); };
            return run_chains<T>(run, slope.size(), config, init, prior_variance, std::move(progress),
                                 std::move(is_enough));
        },
        py::kw_only(), py::arg("constant"), py::arg("slope"), py::arg("matrix"), py::arg("to_theta"), py::arg("terms"),
        py::arg("variance"), py::arg("output"), py::arg("config"), py::arg("init").noconvert(),
        py::arg("prior_variance").noconvert(), py::arg("progress"), py::arg("is_enough") = py::none(),
        py::arg("level"));
}

}  // namespace

void bind_model(py::module_& m) {
    py::class_<Phase>(m, "Phase")
        .def(py::init([](std::int64_t steps, bool adapt, double accept_low, double accept_high, bool accept_all,
                         double energy_error, double persistence, double travel, bool average, double target,
                         std::int64_t first_look, std::int64_t superchains) {
                 return Phase{steps,       adapt,  accept_low, accept_high, accept_all, energy_error,
                              persistence, travel, average,    target,      first_look, superchains};
             }),
             py::kw_only(), py::arg("steps"), py::arg("adapt"), py::arg("accept_low"), py::arg("accept_high"),
             py::arg("accept_all"), py::arg("energy_error"), py::arg("persistence"), py::arg("travel"),
             py::arg("average"), py::arg("target"), py::arg("first_look"), py::arg("superchains"));
    py::class_<SampledVariance>(m, "SampledVariance")
        .def(py::init([](double shape, const Array<double>& rate, const Array<double>& initial, std::int64_t every) {
                 require(rate.size() > 0 && rate.size() == initial.size() && every > 0, "variance");
                 require(rate.ndim() == 1 || rate.ndim() == 2, "rate shape");
                 const std::int64_t sets = rate.ndim() == 2 ? rate.shape(0) : 1;
                 return SampledVariance{shape, to_vector(rate), to_vector(initial), every, sets};
             }),
             py::kw_only(), py::arg("shape"), py::arg("rate").noconvert(), py::arg("initial").noconvert(),
             py::arg("every"));
    py::class_<SampledScales>(m, "SampledScales")
        .def(py::init([](const Array<std::int32_t>& group, std::int64_t groups, double shape, double rate,
                         std::int64_t every, bool interweave) {
                 SampledScales scales{to_vector(group), groups, shape, rate, every, interweave};
                 require(scales.sampled() && every > 0, "scales");
                 for (const std::int32_t one : scales.group) require(0 <= one && one < groups, "group");
                 return scales;
             }),
             py::kw_only(), py::arg("group").noconvert(), py::arg("groups"), py::arg("shape"), py::arg("rate"),
             py::arg("every"), py::arg("interweave"));
    py::class_<RunConfig>(m, "RunConfig")
        .def(py::init([](const std::string& kernel, bool collapse, bool coarse_gradient, double persistence,
                         const std::optional<SampledVariance>& variance, const std::optional<SampledScales>& scales,
                         double step_size, double step_size_max, std::vector<Phase> warmup, const Phase& sampling,
                         std::int64_t draws, std::int64_t thin, std::uint64_t seed, std::int64_t threads,
                         std::int64_t check_every, std::int64_t last_step, std::vector<std::string> states) {
                 RunConfig config;
                 config.kernel = entry_of(kernels, kernel, "kernel").value;
                 config.collapse = collapse;
                 config.coarse_gradient = coarse_gradient;
                 config.persistence = persistence;
                 if (variance) config.variance = *variance;
                 if (scales) config.scales = *scales;
                 config.step_size = step_size;
                 config.step_size_max = step_size_max;
                 config.warmup = std::move(warmup);
                 config.sampling = sampling;
                 config.draws = draws;
                 config.thin = thin;
                 config.seed = seed;
                 config.threads = threads;
                 config.early_end.every = check_every;
                 config.last_step = last_step;
                 config.states = std::move(states);
                 return config;
             }),
             py::kw_only(), py::arg("kernel"), py::arg("collapse"), py::arg("coarse_gradient") = false,
             py::arg("persistence"), py::arg("variance"), py::arg("scales"), py::arg("step_size"),
             py::arg("step_size_max"), py::arg("warmup"), py::arg("sampling"), py::arg("draws"), py::arg("thin"),
             py::arg("seed"), py::arg("threads"), py::arg("check_every") = 0,
             py::arg("last_step") = RunConfig{}.last_step, py::arg("states") = std::vector<std::string>{});
    bind_model_of<float>(m, "Model32");
    bind_model_of<double>(m, "Model64");
    bind_sample_quadratic_of<float>(m, "sample_quadratic32");
    bind_sample_quadratic_of<double>(m, "sample_quadratic64");
}

}  // namespace patrac::bindings
