// Conversions between NumPy arrays and the facade's views. Shapes were validated in Python; here they are asserted.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace patrac::bindings {

namespace py = pybind11;

// C-contiguous. Arguments bound with noconvert must be of exactly this element type; the others are small and may be
// converted where that is exact.
template <class T>
using Array = py::array_t<T, py::array::c_style>;

template <class T>
std::vector<T> to_vector(const Array<T>& array) {
    return {array.data(), array.data() + array.size()};
}

// The internal error of a caller that skipped validation.
inline void require(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(std::string("_core: ") + what);
}

}  // namespace patrac::bindings
