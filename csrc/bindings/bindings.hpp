// What each binding file adds to the module.
#pragma once

#include <pybind11/pybind11.h>

namespace patrac::bindings {

void bind_density(pybind11::module_& m);
void bind_descent(pybind11::module_& m);
void bind_device(pybind11::module_& m);
void bind_device_inputs(pybind11::module_& m);
void bind_device_tensor(pybind11::module_& m);
void bind_foreign_density(pybind11::module_& m);
void bind_model(pybind11::module_& m);
void bind_model_spec(pybind11::module_& m);
void bind_noise(pybind11::module_& m);
void bind_testing(pybind11::module_& m);

}  // namespace patrac::bindings
