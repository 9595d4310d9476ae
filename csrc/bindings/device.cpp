// Bindings of devices: whether one is usable, and models whose chains run on it.
#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/device_inputs.hpp"
#include "bindings/device_tensor.hpp"
#include "bindings/data_arguments.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/run_chains.hpp"
#include "device.hpp"

namespace patrac::bindings {
namespace {

py::dict status_dict(const std::string& device) {
    const DeviceStatus status = device_status(device);
    py::dict d;
    d["usable"] = status.usable;
    d["reason"] = status.reason;
    d["name"] = status.name;
    d["multiprocessors"] = status.multiprocessors;
    d["memory_bytes"] = status.memory_bytes;
    d["shared_bytes"] = status.shared_bytes;
    return d;
}

py::dict layout_dict(const DeviceLayout& layout) {
    py::dict d;
    d["threads"] = layout.threads;
    d["tile_rows"] = layout.tile_rows;
    d["blocks_of_chain"] = layout.blocks_of_chain;
    d["workspace_bytes"] = layout.workspace_bytes;
    d["in_shared_memory"] = layout.in_shared_memory;
    d["parameters_in_shared"] = layout.parameters_in_shared;
    d["wide_inputs"] = layout.wide_inputs;
    return d;
}

template <class T>
Array<T> device_normals_array(const std::string& device, std::uint64_t seed, std::uint32_t chain, std::uint64_t step,
                              Purpose purpose, py::ssize_t count) {
    require(count > 0, "count is not positive");
    Array<T> out(count);
    T* const target = out.mutable_data();
    // out is held by this frame.
    without_gil([&] { return std::to_string(count) + " normals on " + device; },
                [&] { device_normals<T>(device, seed, chain, step, purpose, target, count); });
    return out;
}

// What Python holds of a data set that was laid out for a device.
template <class T>
struct HeldDataSet {
    std::shared_ptr<const DataSet<T>> flat;
};

template <class T>
void bind_data_set_of(py::module_& m, const char* name) {
    py::class_<HeldDataSet<T>>(m, name).def(
        py::init([](const ModelSpec& spec, const std::string& device, const py::object& inputs,
                    const Array<double>& targets, const Array<double>& row_weights) {
            const DataView<T> data = data_view<T>(spec, targets, row_weights);
            InputSource source = source_of(inputs);
            check_inputs_shape(spec, data.n_rows, source.n_rows, source.n_columns);
            // The arguments are held by the caller; the data set copies what it keeps, or holds the inputs.
            return without_gil(
                [&] { return "a data set of " + std::to_string(data.n_rows) + " rows"; },
                [&] { return HeldDataSet<T>{flatten_for_device<T>(device, spec, data, std::move(source))}; });
        }),
        py::arg("spec"), py::kw_only(), py::arg("device"), py::arg("inputs"), py::arg("targets").noconvert(),
        py::arg("row_weights").noconvert());
}

template <class T>
void bind_device_model_of(py::module_& m, const char* name) {
    using Model = DeviceModel<T>;
    py::class_<Model>(m, name)
        .def(py::init([](const std::string& device, const std::vector<const HeldDataSet<T>*>& data_sets) {
                 require(!data_sets.empty(), "no data set");
                 std::vector<std::shared_ptr<const DataSet<T>>> held;
                 for (const HeldDataSet<T>* const data_set : data_sets) held.push_back(data_set->flat);
                 return without_gil([&] { return std::to_string(held.size()) + " data sets on " + device; },
                                    [&] { return make_device_model<T>(device, held); });
             }),
             py::arg("device"), py::arg("data_sets"))
        .def_property_readonly("bytes",
                               [](const Model& model) {
                                   // A run that is waited for may want the GIL.
                                   return without_gil([] { return std::string("a number"); },
                                                      [&] { return model.bytes(); });
                               })
        .def(
            "layout",
            [](const Model& model, bool persists, std::int64_t chains) {
                return layout_dict(model.layout(persists, chains));
            },
            py::arg("persists"), py::arg("chains") = 1)
        .def(
            "log_likelihood",
            [](Model& model, const Array<T>& theta) {
                require(theta.ndim() == 2 && theta.shape(1) == model.dim(), "theta shape");
                Array<double> value(theta.shape(0));
                double* const out = value.mutable_data();
                // Both arrays are held by this frame.
                without_gil([&] { return points_words("the log-likelihood", theta.shape(0), theta.shape(1)); },
                            [&] { model.evaluate(theta.data(), theta.shape(0), out, nullptr, false); });
                return value;
            },
            py::arg("theta").noconvert())
        .def(
            "log_likelihood_and_grad",
            [](Model& model, const Array<T>& theta, bool coarse) {
                require(theta.ndim() == 2 && theta.shape(1) == model.dim(), "theta shape");
                Array<double> value(theta.shape(0));
                Array<T> gradient({theta.shape(0), theta.shape(1)});
                double* const out = value.mutable_data();
                T* const slope = gradient.mutable_data();
                // All three arrays are held by this frame.
                without_gil([&] { return points_words("the gradient", theta.shape(0), theta.shape(1)); },
                            [&] { model.evaluate(theta.data(), theta.shape(0), out, slope, coarse); });
                return py::make_tuple(value, gradient);
            },
            py::arg("theta").noconvert(), py::kw_only(), py::arg("coarse") = false)
        .def(
            "sample",
            [](Model& model, const RunConfig& config, const std::vector<std::uint64_t>& seeds, const Array<T>& init,
               const Array<double>& prior_variance, py::object progress, bool keep_on_device,
               const std::optional<Array<double>>& step_factor) {
                require(std::ssize(seeds) == model.data_sets() &&
                            prior_variance.size() == model.data_sets() * model.dim() && init.ndim() == 2 &&
                            init.shape(0) > 0 && init.shape(0) % model.data_sets() == 0,
                        "a seed and prior_variance (K,) for each data set, and as many chains for each");
                std::shared_ptr<const DeviceMemory> theta;
                const auto run = [&](const RunConfig& c, auto&&... args) {
                    return model.sample(c, seeds, args..., keep_on_device ? &theta : nullptr);
                };
                py::dict result = run_chains<T>(run, model.dim(), config, init, prior_variance, std::move(progress),
                                                py::none(), step_factor, keep_on_device);
                if (keep_on_device)
                    result["theta"] = DeviceTensor{.memory = std::move(theta),
                                                   .element_bytes = sizeof(T),
                                                   .shape = {init.shape(0), config.draws, model.dim()},
                                                   .pitch = config.draws * model.dim()};
                return result;
            },
            py::arg("config"), py::arg("seeds"), py::arg("init").noconvert(), py::arg("prior_variance").noconvert(),
            py::arg("progress"), py::arg("keep_on_device") = false, py::arg("step_factor").noconvert() = py::none());
}

}  // namespace

void bind_device(py::module_& m) {
    m.def("device_status", &status_dict, py::arg("device"));
    m.attr("MAX_DEVICE_LAYERS") = max_device_layers();
    const auto bind = [&m](const char* name, auto function) {
        m.def(name, function, py::kw_only(), py::arg("device"), py::arg("seed"), py::arg("chain"), py::arg("step"),
              py::arg("purpose"), py::arg("count"));
    };
    bind("device_normals32", &device_normals_array<float>);
    bind("device_normals64", &device_normals_array<double>);
    bind_data_set_of<float>(m, "DataSet32");
    bind_data_set_of<double>(m, "DataSet64");
    bind_device_model_of<float>(m, "DeviceModel32");
    bind_device_model_of<double>(m, "DeviceModel64");
}

}  // namespace patrac::bindings
