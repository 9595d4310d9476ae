// Bindings of the log density for other libraries.
#include <memory>
#include <optional>
#include <utility>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/interpreter.hpp"
#include "bridges.hpp"

namespace patrac::bindings {
namespace {

// Calls the density without the GIL: gradient is null, or has the shape of the points.
template <class T>
Array<double> evaluate(const Density<T>& density, const Array<T>& points, T* gradient, std::int64_t threads,
                       const std::optional<Array<double>>& variance) {
    require(points.ndim() == 2 && points.shape(1) == density.dim(), "points shape");
    require(!variance || (variance->ndim() == 2 && variance->shape(0) == points.shape(0) &&
                          variance->shape(1) == density.n_variances()),
            "variance shape");
    const double* const own = variance ? variance->data() : nullptr;
    Array<double> values(points.shape(0));
    double* const out = values.mutable_data();
    // The arrays are held by this frame and its caller.
    without_gil([&] { return points_words("the density", points.shape(0), points.shape(1)); },
                [&] { density.evaluate(points.data(), points.shape(0), out, gradient, threads, own); });
    return values;
}

template <class T>
void bind_density_of(py::module_& m, const char* name) {
    py::class_<Density<T>, std::shared_ptr<Density<T>>>(m, name)
        .def_static(
            "xla_handler",
            [](bool with_gradient) { return py::capsule(reinterpret_cast<void*>(xla_handler<T>(with_gradient))); })
        .def_static("xla_instantiate", [] { return py::capsule(reinterpret_cast<void*>(xla_instantiate<T>())); })
        .def("publish", [](const std::shared_ptr<Density<T>>& density) { return publish<T>(density); })
        .def_static(
            "withdraw", [](std::int64_t number) { withdraw<T>(number); }, py::arg("number"))
        .def(
            "c_context",
            [](const std::shared_ptr<Density<T>>& density, std::int64_t threads) {
                return py::capsule(new CContext{density, threads}, PATRAC_CONTEXT_CAPSULE, [](PyObject* capsule) {
                    delete static_cast<CContext*>(PyCapsule_GetPointer(capsule, PATRAC_CONTEXT_CAPSULE));
                });
            },
            py::arg("threads"))
        .def(py::init([](std::shared_ptr<Model<T>> model, const std::string& kind, bool whitened, bool log_variance,
                         const Array<double>& prior_variance, const Array<double>& variance, double reference,
                         double terms, double shape, const Array<double>& rate) {
                 DensitySpec spec{entry_of(density_kinds, kind, "density").value,
                                  whitened,
                                  log_variance,
                                  to_vector(prior_variance),
                                  to_vector(variance),
                                  reference,
                                  terms,
                                  shape,
                                  to_vector(rate)};
                 const bool needs_prior = whitened || spec.kind != DensityKind::likelihood;
                 require(prior_variance.size() == model->dim() || (prior_variance.size() == 0 && !needs_prior),
                         "prior_variance shape");
                 require(variance.size() == 0 || variance.size() == model->n_outputs() || reference > 0.0,
                         "variance shape");
                 require(!log_variance || (variance.size() > 0 && !is_collapsed(spec.kind)), "log_variance");
                 require(!log_variance || !has_prior(spec.kind) || rate.size() == variance.size(), "rate shape");
                 return std::make_shared<Density<T>>(std::move(model), std::move(spec));
             }),
             py::arg("model"), py::kw_only(), py::arg("kind"), py::arg("whitened"), py::arg("log_variance"),
             py::arg("prior_variance"), py::arg("variance"), py::arg("reference"), py::arg("terms"), py::arg("shape"),
             py::arg("rate"))
        .def_property_readonly("dim", &Density<T>::dim)
        .def_property_readonly("is_collapsed", &Density<T>::collapses)
        .def_property_readonly("full_dim", &Density<T>::full_dim)
        .def(
            "complete",
            [](const Density<T>& density, const Array<T>& points, const Array<T>& normals, std::int64_t threads) {
                const std::int64_t full = density.full_dim();
                require(density.collapses(), "density");
                require(points.ndim() == 2 && points.shape(1) == density.dim(), "points shape");
                require(normals.ndim() == 2 && normals.shape(0) == points.shape(0) &&
                            normals.shape(1) == full - density.dim(),
                        "normals shape");
                Array<T> theta({points.shape(0), full});
                T* const out = theta.mutable_data();
                without_gil([&] { return points_words("the output weights", points.shape(0), full); },
                            [&] { density.complete(points.data(), points.shape(0), normals.data(), out, threads); });
                return theta;
            },
            py::arg("points").noconvert(), py::arg("normals").noconvert(), py::arg("threads"))
        .def(
            "value",
            [](const Density<T>& density, const Array<T>& points, std::int64_t threads,
               const std::optional<Array<double>>& variance) {
                return evaluate<T>(density, points, nullptr, threads, variance);
            },
            py::arg("points").noconvert(), py::arg("threads"), py::arg("variance").noconvert() = py::none())
        .def(
            "value_and_grad",
            [](const Density<T>& density, const Array<T>& points, std::int64_t threads,
               const std::optional<Array<double>>& variance) {
                Array<T> gradient({points.shape(0), points.ndim() == 2 ? points.shape(1) : 0});
                const Array<double> values = evaluate<T>(density, points, gradient.mutable_data(), threads, variance);
                return py::make_tuple(values, gradient);
            },
            py::arg("points").noconvert(), py::arg("threads"), py::arg("variance").noconvert() = py::none());
}

}  // namespace

void bind_density(py::module_& m) {
    bind_density_of<float>(m, "Density32");
    bind_density_of<double>(m, "Density64");
    m.def("c_function", [] { return py::capsule(reinterpret_cast<void*>(density_function), PATRAC_FUNCTION_CAPSULE); });
    m.def("c_batched", [] { return py::capsule(reinterpret_cast<void*>(density_batched), PATRAC_BATCHED_CAPSULE); });
    m.def("xla_state", [] {
        py::dict state;
        state["type_id"] = py::capsule(xla_state_type());
        state["type_info"] = py::capsule(xla_state_info());
        return state;
    });
    m.attr("XLA_INTERFACE") = py::make_tuple(xla::major_version, xla::minor_version);
}

}  // namespace patrac::bindings
