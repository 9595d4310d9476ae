// The extension module patrac_native.engine._core.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bindings.hpp"
#include "bindings/interpreter.hpp"
#include "patrac.hpp"

PYBIND11_MODULE(_core, m) {
    m.doc() = "Compiled core of patrac_native.";
    m.def("simd_levels", &patrac::simd_levels);
    m.def("default_simd_level", &patrac::default_simd_level);
    m.attr("COMPILER") = PATRAC_COMPILER;
    m.attr("FLAGS") = PATRAC_FLAGS;
    m.attr("CUDA") = PATRAC_CUDA_VERSION;
    patrac::bindings::watch_the_end();
    patrac::bindings::name_memory_errors();
    patrac::bindings::bind_model_spec(m);
    patrac::bindings::bind_model(m);
    patrac::bindings::bind_descent(m);
    patrac::bindings::bind_density(m);
    patrac::bindings::bind_foreign_density(m);
    patrac::bindings::bind_device_tensor(m);
    patrac::bindings::bind_device_inputs(m);
    patrac::bindings::bind_device(m);
    patrac::bindings::bind_noise(m);
    patrac::bindings::bind_testing(m);
}
