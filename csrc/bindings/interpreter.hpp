// The interpreter as native code meets it: calls without the GIL, calls of Python from them, Ctrl-C, memory that is not
// there, and the interpreter's end.
//
// At its end CPython waits for no daemon thread: one that then takes the GIL is ended by unwinding its stack, through
// frames of C++ whose destructors take the GIL or release references. So the core registers end_native_calls() with
// atexit: it interrupts all native calls and waits until they have returned to Python, and no call begins after it. A
// call that does not return in time, such as one in a function of the user's that sleeps, never does: wherever its
// threads would take the GIL after that, they wait for the end of the process.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "bindings/arrays.hpp"
#include "patrac.hpp"

namespace patrac::bindings {

// Registers end_native_calls() with atexit, and what a forked process must know.
void watch_the_end();
// Makes std::bad_alloc outside without_gil(), of arguments and results, a MemoryError with words.
void name_memory_errors();
bool is_ending();    // no call begins, and those that have begun end
bool is_given_up();  // no thread of a call takes the GIL: what it holds is kept

namespace detail {

[[noreturn]] void stay();

// Calls f(), a function of Python's C interface that may run Python code, takes the GIL or both. No frame below this
// one may have a destructor: if the thread is ended in f(), it stays here, and what the frames above hold is kept.
template <class F>
auto staying(const F& f) {
    struct Guard {
        bool has_returned = false;
        ~Guard() {
            if (!has_returned) stay();
        }
    } guard;
    if constexpr (std::is_void_v<decltype(f())>) {
        f();
        guard.has_returned = true;
    } else {
        const auto result = f();
        guard.has_returned = true;
        return result;
    }
}

}  // namespace detail

// Holds the GIL in a thread of a native call.
class HeldGil {
public:
    HeldGil();
    ~HeldGil();
    HeldGil(const HeldGil&) = delete;
    HeldGil& operator=(const HeldGil&) = delete;

private:
    PyGILState_STATE state_;
};

// Calls a Python object from a native call, whose threads may be ended in it.
template <class... Arguments>
py::object call_python(const py::handle& function, Arguments&&... arguments) {
    const py::tuple given = py::make_tuple(std::forward<Arguments>(arguments)...);
    PyObject* const result = detail::staying([&] { return PyObject_Call(function.ptr(), given.ptr(), nullptr); });
    if (!result) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(result);
}

// A call of the core, without the GIL for as long as this lives. It may be interrupted by Ctrl-C and by the
// interpreter's end: the core then throws Interrupted. Raises SystemExit if the interpreter has ended already.
class NativeCall final : private Interruption {
public:
    NativeCall();
    ~NativeCall() override;

    // What a handler of a signal raised, or null.
    const std::exception_ptr& raised() const { return raised_; }

private:
    bool is_requested() override;

    PyThreadState* thread_;
    std::exception_ptr raised_;
};

// Raises what interrupted a call.
[[noreturn]] void raise_interruption(const std::exception_ptr& raised);
// Raises MemoryError: `what` was asked for, and `failure` tells how much was not there.
[[noreturn]] void raise_memory_error(const std::string& what, const std::bad_alloc& failure);

// Raises what a handler of a signal raises.
void check_signals();

// "what at count points of size parameters", for what was asked for.
std::string points_words(const char* what, py::ssize_t count, py::ssize_t size, const char* points = "points",
                         const char* coordinates = "parameters");

// Returns what body() does without the GIL. It touches no Python object, and its caller holds what it reads. `what`()
// says what was asked for where the memory does not suffice.
template <class What, class Body>
auto without_gil(const What& what, const Body& body) -> decltype(body()) {
    std::exception_ptr raised;
    const auto call = [&] {
        const NativeCall native;
        try {
            return body();
        } catch (const Interrupted&) {
            raised = native.raised();
            throw;
        }
    };
    try {
        return call();
    } catch (const Interrupted&) {
        raise_interruption(raised);
    } catch (const std::bad_alloc& failure) {
        raise_memory_error(what(), failure);
    }
}

}  // namespace patrac::bindings
