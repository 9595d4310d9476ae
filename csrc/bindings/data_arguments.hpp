// The data of a model, as Python passes them.
#pragma once

#include <cstdint>
#include <memory>

#include "bindings/arrays.hpp"
#include "bindings/interpreter.hpp"
#include "patrac.hpp"

namespace patrac::bindings {

// Keeps a Python object until the last copy of the pointer is gone, in whatever thread that is.
inline std::shared_ptr<const void> hold(const py::object& object) {
    return {new py::object(object), [](const void* held) {
                if (is_given_up()) return;
                const HeldGil gil;
                delete static_cast<const py::object*>(held);
            }};
}

// A view of targets and row weights, which the caller holds.
template <class T>
DataView<T> data_view(const ModelSpec& spec, const Array<double>& targets, const Array<double>& row_weights) {
    const DataView<T> data{.n_rows = row_weights.size(), .targets = targets.data(), .row_weights = row_weights.data()};
    require(targets.size() == data.n_rows * targets_per_row(spec.likelihood.kind, spec.network.n_outputs()),
            "targets shape");
    return data;
}

inline void check_inputs_shape(const ModelSpec& spec, std::int64_t n_rows, std::int64_t rows, std::int64_t columns) {
    require(rows == n_rows && columns == spec.network.n_inputs(), "inputs shape");
}

// Adds inputs (n, d) of the model's type or bytes to the view; with `in_place` the model may hold them.
template <class T>
void set_inputs(const ModelSpec& spec, const py::array& inputs, bool in_place, DataView<T>& data) {
    require(inputs.ndim() == 2, "inputs shape");
    check_inputs_shape(spec, data.n_rows, inputs.shape(0), inputs.shape(1));
    const bool bytes = py::isinstance<py::array_t<std::uint8_t>>(inputs);
    require(bytes || py::isinstance<py::array_t<T>>(inputs), "inputs of the model's type or bytes");
    const py::ssize_t size = inputs.itemsize();
    require(inputs.strides(0) % size == 0 && inputs.strides(1) % size == 0, "aligned inputs");
    if (bytes)
        data.byte_inputs = static_cast<const std::uint8_t*>(inputs.data());
    else
        data.inputs = static_cast<const T*>(inputs.data());
    data.row_step = inputs.strides(0) / size;
    data.column_step = inputs.strides(1) / size;
    if (in_place && !bytes) data.owner = hold(inputs);
}

}  // namespace patrac::bindings
