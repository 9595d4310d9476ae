// Bindings of the noise streams.
#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/interpreter.hpp"
#include "patrac.hpp"

namespace patrac::bindings {
namespace {

template <class T>
Array<T> normals(std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, py::ssize_t steps,
                 py::ssize_t count, const std::string& level) {
    require(steps >= 0 && count >= 0, "steps or count is negative");
    Array<T> out({steps, count});
    T* const target = out.mutable_data();
    // out is held by this frame.
    without_gil([&] { return points_words("normals", steps, count, "steps", "coordinates"); },
                [&] { standard_normals<T>(seed, chain, step, purpose, target, steps, count, level); });
    return out;
}

}  // namespace

void bind_noise(py::module_& m) {
    py::enum_<Purpose>(m, "Purpose")
        .value("proposal", Purpose::proposal)
        .value("acceptance", Purpose::acceptance)
        .value("init", Purpose::init)
        .value("prior", Purpose::prior);
    const auto bind = [&m](const char* name, auto function) {
        m.def(name, function, py::kw_only(), py::arg("seed"), py::arg("chain"), py::arg("step"), py::arg("purpose"),
              py::arg("steps"), py::arg("count"), py::arg("level"));
    };
    bind("standard_normals32", &normals<float>);
    bind("standard_normals64", &normals<double>);
}

}  // namespace patrac::bindings
