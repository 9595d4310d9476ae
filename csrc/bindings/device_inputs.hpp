// Inputs as Python passes them: NumPy arrays, and arrays of other libraries on a device.
#pragma once

#include "bindings/arrays.hpp"
#include "device.hpp"

namespace patrac::bindings {

// Of a NumPy array without gaps or of DeviceInputs, either held by the source.
InputSource source_of(const py::object& inputs);

}  // namespace patrac::bindings
