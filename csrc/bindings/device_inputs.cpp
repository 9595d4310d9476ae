// Bindings of inputs on a device: taken from a DLPack capsule or a pointer, inspected, and copied to the host.
#include "bindings/device_inputs.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bindings/bindings.hpp"
#include "bindings/dlpack.hpp"
#include "bindings/data_arguments.hpp"
#include "bindings/interpreter.hpp"

namespace patrac::bindings {
namespace {

using Taken = std::shared_ptr<DeviceInputs>;

std::optional<InputType> type_of(char kind, std::int64_t bytes) {
    if (kind == 'u' && bytes == 1) return InputType::bytes;
    if (kind == 'f' && bytes == 4) return InputType::floats;
    if (kind == 'f' && bytes == 8) return InputType::doubles;
    return std::nullopt;
}

const char* name_of(InputType type) {
    switch (type) {
        case InputType::bytes: return "uint8";
        case InputType::floats: return "float32";
        case InputType::doubles:
        case InputType::rounded_doubles: return "float64";
    }
    __builtin_unreachable();
}

Taken take(const std::string& device, InputSource source, bool copy, std::uintptr_t stream) {
    if (reinterpret_cast<std::uintptr_t>(source.matrix.data) % bytes_of(source.matrix.type) != 0)
        throw std::invalid_argument("X must begin at a whole multiple of its entries' size; copy it");
    const std::int64_t rows = source.n_rows, columns = source.n_columns;
    // The owner of the memory takes the GIL to release it.
    return without_gil(
        [&] { return "inputs of shape (" + std::to_string(rows) + ", " + std::to_string(columns) + ") on " + device; },
        [&] { return std::const_pointer_cast<DeviceInputs>(take_inputs(device, std::move(source), copy, stream)); });
}

template <class Managed>
Taken take_managed(const std::string& device, const py::capsule& capsule, bool copy, std::uintptr_t stream) {
    auto* const managed = capsule.get_pointer<Managed>();
    const dlpack::Tensor& tensor = managed->tensor;
    const auto type = type_of(tensor.dtype.code == 1 ? 'u' : tensor.dtype.code == 2 ? 'f' : '?', tensor.dtype.bits / 8);
    require(tensor.ndim == 2 && tensor.dtype.lanes == 1 && type, "a matrix of uint8, float32 or float64");
    const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    // Before version 1.2 of the standard, absent strides mean C order.
    const bool given = tensor.strides != nullptr;
    const InputMatrix matrix{static_cast<const char*>(tensor.data) + tensor.byte_offset, *type,
                             given ? tensor.strides[0] : columns, given ? tensor.strides[1] : 1};
    // From here on this function must release the tensor.
    require(PyCapsule_SetName(capsule.ptr(), Managed::used) == 0, "a capsule to take over");
    std::shared_ptr<const void> owner(managed, [](Managed* taken) {
        if (is_given_up()) return;
        const HeldGil gil;  // some libraries' deleters touch Python objects
        if (taken->deleter) taken->deleter(taken);
    });
    return take(device, {matrix, rows, columns, {}, std::move(owner)}, copy, stream);
}

Taken from_dlpack(const std::string& device, const py::capsule& capsule, bool copy, std::uintptr_t stream) {
    if (PyCapsule_IsValid(capsule.ptr(), dlpack::ManagedTensorVersioned::name)) {
        if (capsule.get_pointer<dlpack::ManagedTensorVersioned>()->major != 1)
            throw std::invalid_argument("X comes by a version of DLPack that is not known here; copy it to the host");
        return take_managed<dlpack::ManagedTensorVersioned>(device, capsule, copy, stream);
    }
    require(PyCapsule_IsValid(capsule.ptr(), dlpack::ManagedTensor::name),
            "a DLPack capsule that has not been consumed");
    return take_managed<dlpack::ManagedTensor>(device, capsule, copy, stream);
}

Taken from_pointer(const std::string& device, const py::object& owner, std::uintptr_t pointer, char kind,
                   std::array<std::int64_t, 2> shape, std::array<std::int64_t, 2> strides, std::int64_t itemsize,
                   bool copy, std::uintptr_t stream) {
    const auto type = type_of(kind, itemsize);
    require(type.has_value(), "uint8, float32 or float64");
    if (strides[0] % itemsize != 0 || strides[1] % itemsize != 0)
        throw std::invalid_argument("X must have strides that are whole multiples of its entries' size; copy it");
    const InputMatrix matrix{reinterpret_cast<const void*>(pointer), *type, strides[0] / itemsize,
                             strides[1] / itemsize};
    return take(device, {matrix, shape[0], shape[1], {}, hold(owner)}, copy, stream);
}

py::array fetch(const DeviceInputs& inputs) {
    const InputSource& source = inputs.source();
    py::array out(py::dtype(name_of(source.matrix.type)), {source.n_rows, source.n_columns});
    void* const to = out.mutable_data();
    // out is held by this frame.
    without_gil([&] { return points_words("the inputs", source.n_rows, source.n_columns); },
                [&] { inputs.download(to); });
    return out;
}

}  // namespace

InputSource source_of(const py::object& inputs) {
    if (py::isinstance<DeviceInputs>(inputs)) {
        const auto taken = py::cast<Taken>(inputs);
        InputSource source = taken->source();
        source.owner = taken;
        return source;
    }
    require(py::isinstance<py::array>(inputs), "an array or DeviceInputs");
    const auto array = py::reinterpret_borrow<py::array>(inputs);
    const auto type = type_of(array.dtype().kind(), array.itemsize());
    require(array.ndim() == 2 && type && (array.flags() & (py::array::c_style | py::array::f_style)),
            "inputs without gaps of uint8, float32 or float64");
    const py::ssize_t size = array.itemsize();
    return {{array.data(), *type, array.strides(0) / size, array.strides(1) / size},
            array.shape(0),
            array.shape(1),
            {.kind = DevicePlace::host, .index = 0},
            hold(array)};
}

void bind_device_inputs(py::module_& m) {
    m.attr("ALL_STREAMS") = all_streams;
    py::class_<DeviceInputs, Taken>(m, "DeviceInputs")
        .def_static("from_dlpack", &from_dlpack, py::arg("device"), py::arg("capsule"), py::arg("copy"),
                    py::arg("stream") = 0)
        .def_static("from_pointer", &from_pointer, py::kw_only(), py::arg("device"), py::arg("owner"),
                    py::arg("pointer"), py::arg("kind"), py::arg("shape"), py::arg("strides"), py::arg("itemsize"),
                    py::arg("copy"), py::arg("stream") = 0)
        .def_property_readonly("shape",
                               [](const DeviceInputs& inputs) {
                                   return py::make_tuple(inputs.source().n_rows, inputs.source().n_columns);
                               })
        .def_property_readonly("dtype", [](const DeviceInputs& inputs) { return name_of(inputs.source().matrix.type); })
        .def_property_readonly("place",
                               [](const DeviceInputs& inputs) {
                                   const DevicePlace& place = inputs.source().place;
                                   return py::make_tuple(place.kind, place.index);
                               })
        .def(
            "bad_entries",
            [](const DeviceInputs& inputs, double max_magnitude) {
                return without_gil([] { return std::string("an inspection of inputs"); },
                                   [&] { return inputs.inspect(max_magnitude).bad; });
            },
            py::arg("max_magnitude"))
        .def("fetch", &fetch);
}

}  // namespace patrac::bindings
