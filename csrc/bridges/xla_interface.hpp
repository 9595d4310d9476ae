// Declarations of our own of the structures by which XLA calls foreign functions on the CPU, so that neither building
// nor running needs jaxlib. They state the layout of version 0.3 of XLA's published C interface, members in its order
// and as far as they are read here; tests/test_xla_interface.py compares sizes, offsets and numbers with jaxlib's
// header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace patrac::xla {

inline constexpr int major_version = 0, minor_version = 3;

// Numbers of the interface.
inline constexpr int metadata_extension = 1;
inline constexpr int stage_instantiate = 0, stage_execute = 3;
inline constexpr int buffer_argument = 1;
inline constexpr int scalar_attribute = 3;
inline constexpr int type_s64 = 5, type_f32 = 11, type_f64 = 12;
inline constexpr int error_invalid_argument = 3, error_failed_precondition = 9, error_internal = 13;

struct Error;
struct Api;

struct Extension {
    std::size_t struct_size;
    int type;
    Extension* next;
};

struct ApiVersion {
    std::size_t struct_size;
    Extension* extensions;
    int major_version;
    int minor_version;
};

struct Buffer {
    std::size_t struct_size;
    Extension* extensions;
    int type;
    void* data;
    std::int64_t rank;
    std::int64_t* dims;  // (rank,)
};

struct ByteSpan {
    const char* data;
    std::size_t size;
};

struct Scalar {
    int type;
    void* value;
};

// Arguments and results: `size` of them, each of a type, a Buffer if that is buffer_argument.
struct Buffers {
    std::size_t struct_size;
    Extension* extensions;
    std::int64_t size;
    int* types;
    void** values;
};

struct Attributes {
    std::size_t struct_size;
    Extension* extensions;
    std::int64_t size;
    int* types;
    ByteSpan** names;
    void** values;  // a Scalar if the type is scalar_attribute
};

struct CallFrame {
    std::size_t struct_size;
    Extension* extensions;
    const Api* api;
    void* context;
    int stage;
    Buffers arguments;
    Buffers results;
    Attributes attributes;
    void* future;
};

struct ErrorCreateArguments {
    std::size_t struct_size;
    Extension* extensions;
    const char* message;
    int code;
};

// A type of state that a handler keeps with a compiled program; XLA gives it a number.
struct TypeInfo {
    std::size_t struct_size;
    Extension* extensions;
    void (*deleter)(void* state);
};

// Of a call that sets a state, which XLA then owns, or gets one.
struct StateArguments {
    std::size_t struct_size;
    Extension* extensions;
    void* context;
    int stage;
    std::int64_t* type;
    void* state;
};

// The functions that XLA offers, as far as the last of them that is called here.
struct Api {
    std::size_t struct_size;
    Extension* extensions;
    ApiVersion version;
    const void* internal;
    Error* (*error_create)(ErrorCreateArguments*);
    const void* others[6];
    Error* (*state_set)(StateArguments*);
    Error* (*state_get)(StateArguments*);
};

struct Metadata {
    std::size_t struct_size;
    ApiVersion version;
    std::uint32_t traits;
    std::int64_t state_type;  // 0: none
};

// With this extension XLA asks, when a handler is registered, for the version that it was written for.
struct MetadataExtension {
    Extension base;
    Metadata* metadata;
};

using Handler = Error* (*)(CallFrame*);

}  // namespace patrac::xla
