// Bindings of the noise streams.
#include "../patrac.hpp"
#include "arrays.hpp"
#include "bindings.hpp"

namespace patrac::bindings {
namespace {

template <class T>
Array<T> normals(std::uint64_t seed, std::uint32_t chain, std::uint64_t step, std::uint16_t purpose, py::ssize_t count,
                 const std::string& level) {
    Array<T> out(count);
    standard_normals<T>(seed, chain, step, purpose, out.mutable_data(), count, level);
    return out;
}

}  // namespace

void bind_noise(py::module_& m) {
    const auto bind = [&m](const char* name, auto function) {
        m.def(name, function, py::kw_only(), py::arg("seed"), py::arg("chain"), py::arg("step"), py::arg("purpose"),
              py::arg("count"), py::arg("level"));
    };
    bind("standard_normals32", &normals<float>);
    bind("standard_normals64", &normals<double>);
    // The purposes of shared/philox.hpp that Python draws for.
    m.attr("PURPOSE_PROPOSAL") = 0;
    m.attr("PURPOSE_INIT") = 2;
    m.attr("PURPOSE_PRIOR") = 3;
}

}  // namespace patrac::bindings
