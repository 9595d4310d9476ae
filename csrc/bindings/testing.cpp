// Bindings of the pieces that tests reach one by one: `_core.testing`.
#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/interpreter.hpp"
#include "device.hpp"
#include "patrac.hpp"

namespace patrac::bindings {
namespace {

template <class T>
Array<T> elementary(const std::string& name, const Array<T>& x, const std::string& level) {
    Array<T> y(x.size());
    testing::elementary<T>(name, x.data(), y.mutable_data(), x.size(), level);
    return y;
}

std::int64_t repeat_operation(const std::string& name, const std::string& dtype, std::int64_t repeats,
                              const std::string& level) {
    require(dtype == "float32" || dtype == "float64", "dtype float32 or float64");
    return without_gil([&] { return name; },
                       [&] {
                           return dtype == "float32" ? testing::repeat_operation<float>(name, repeats, level)
                                                     : testing::repeat_operation<double>(name, repeats, level);
                       });
}

py::tuple cholesky(const Array<double>& a, const std::string& level) {
    require(a.ndim() == 2 && a.shape(0) == a.shape(1), "a square matrix");
    const auto size = a.shape(0);
    Array<double> u({size, size}), w({size, size}), inverse({size, size});
    const double log_determinant =
        testing::cholesky(a.data(), size, u.mutable_data(), w.mutable_data(), inverse.mutable_data(), level);
    return py::make_tuple(log_determinant, u, w, inverse);
}

}  // namespace

void bind_testing(py::module_& m) {
    py::module_ t = m.def_submodule("testing", "Pieces of the core, for tests and benchmarks.");
    t.def("levels", &simd_levels);
    t.def("elementary_functions", &testing::elementary_functions);
    t.def("elementary", &elementary<float>, py::arg("name"), py::arg("x").noconvert(), py::arg("level"));
    t.def("elementary", &elementary<double>, py::arg("name"), py::arg("x").noconvert(), py::arg("level"));
    t.def("repeat_operation", &repeat_operation, py::arg("name"), py::arg("dtype"), py::arg("repeats"),
          py::arg("level"));
    t.def("emulated_barriers", &emulated_barriers);
    t.def("philox", &testing::philox, py::arg("counter"), py::arg("key"), py::arg("level"));
    t.def("cholesky", &cholesky, py::arg("a"), py::arg("level"));
    t.def("stream_key", &testing::stream_key, py::arg("seed"), py::arg("chain"), py::arg("level"));
}

}  // namespace patrac::bindings
