// Bindings of draws that stay on a device: their place, slices, and export to other libraries and to the host.
#include "bindings/device_tensor.hpp"

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/dlpack.hpp"
#include "bindings/interpreter.hpp"

namespace patrac::bindings {
namespace {

// Resources that an exported tensor needs until its last holder releases it.
template <class Managed>
struct Handed {
    Managed managed{};
    std::array<std::int64_t, 3> shape, strides;
    std::shared_ptr<const DeviceMemory> memory;
};

template <class Managed>
py::capsule hand_out(const DeviceTensor& tensor) {
    const DevicePlace place = tensor.memory->place();
    auto* const handed = new Handed<Managed>{{}, tensor.shape, tensor.strides(), tensor.memory};
    Managed& managed = handed->managed;
    managed.tensor = {.data = tensor.data(),
                      .device = {place.kind, place.index},
                      .ndim = 3,
                      .dtype = {.code = 2, .bits = static_cast<std::uint8_t>(8 * tensor.element_bytes), .lanes = 1},
                      .shape = handed->shape.data(),
                      .strides = handed->strides.data(),
                      .byte_offset = 0};
    managed.context = handed;
    // Touches no Python object, so the holder of the tensor may call it without the GIL.
    managed.deleter = [](Managed* self) { delete static_cast<Handed<Managed>*>(self->context); };
    // A consumer renames the capsule and calls the deleter; otherwise the capsule does.
    return py::capsule(&managed, Managed::name, [](PyObject* capsule) {
        if (PyCapsule_IsValid(capsule, Managed::used)) return;
        auto* const own = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::name));
        own->deleter(own);
    });
}

template <class T>
py::array fetch_as(const DeviceTensor& tensor) {
    Array<T> out({tensor.shape[0], tensor.shape[1], tensor.shape[2]});
    T* const to = out.mutable_data();
    if (out.size() == 0) return out;
    // out is held by this frame.
    without_gil([&] { return points_words("the draws", tensor.shape[0] * tensor.shape[1], tensor.shape[2]); },
                [&] {
                    tensor.memory->download(to, tensor.data(), static_cast<std::size_t>(tensor.pitch) * sizeof(T),
                                            static_cast<std::size_t>(tensor.shape[1] * tensor.shape[2]) * sizeof(T),
                                            static_cast<std::size_t>(tensor.shape[0]));
                });
    return out;
}

}  // namespace

void bind_device_tensor(py::module_& m) {
    py::class_<DeviceTensor>(m, "DeviceTensor")
        .def_property_readonly("shape",
                               [](const DeviceTensor& t) { return py::make_tuple(t.shape[0], t.shape[1], t.shape[2]); })
        .def_property_readonly("strides",
                               [](const DeviceTensor& t) {
                                   const auto s = t.strides();
                                   const std::int64_t size = t.element_bytes;
                                   return py::make_tuple(s[0] * size, s[1] * size, s[2] * size);
                               })
        .def_property_readonly("element_bytes", [](const DeviceTensor& t) { return t.element_bytes; })
        .def_property_readonly("place",
                               [](const DeviceTensor& t) {
                                   const DevicePlace place = t.memory->place();
                                   return py::make_tuple(place.kind, place.index);
                               })
        .def_property_readonly("pointer",
                               [](const DeviceTensor& t) { return reinterpret_cast<std::uintptr_t>(t.data()); })
        .def(
            "part",
            [](const DeviceTensor& t, std::int64_t first_chain, std::int64_t chains, std::int64_t draws) {
                require(first_chain >= 0 && chains >= 0 && first_chain + chains <= t.shape[0] && draws >= 0 &&
                            draws <= t.shape[1],
                        "a part of the tensor");
                DeviceTensor part = t;
                part.first += first_chain * t.pitch;
                part.shape = {chains, draws, t.shape[2]};
                return part;
            },
            py::arg("first_chain"), py::arg("chains"), py::arg("draws"))
        .def("fetch",
             [](const DeviceTensor& t) {
                 return t.element_bytes == sizeof(float) ? fetch_as<float>(t) : fetch_as<double>(t);
             })
        .def(
            "dlpack",
            [](const DeviceTensor& t, bool versioned) {
                return versioned ? hand_out<dlpack::ManagedTensorVersioned>(t) : hand_out<dlpack::ManagedTensor>(t);
            },
            py::arg("versioned"));
}

}  // namespace patrac::bindings
