// Native calls, their interruption and their end.
#include "bindings/interpreter.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

namespace patrac::bindings {
namespace {

// Calls that have begun and not yet returned to Python, whether they are to end, and whether those that have not are
// given up. They are never destroyed, since threads read them until the process ends.
std::atomic<std::int64_t> calls{0};
std::atomic<bool> ending{false}, given_up{false};

// Longer than the core needs to a place where it can be interrupted, and than a function of the user's should take.
constexpr auto patience = std::chrono::seconds(5);

// Called by atexit, when threads that are no daemons have ended.
void end_native_calls() {
    ending = true;
    PyThreadState* const thread = PyEval_SaveThread();
    const auto until = std::chrono::steady_clock::now() + patience;
    while (calls > 0 && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    PyEval_RestoreThread(thread);
    given_up = true;
}

// Before the GIL is taken in a native call.
void stay_if_given_up() {
    if (is_given_up()) detail::stay();
}

}  // namespace

namespace detail {

void stay() {
    for (;;) pause();
}

}  // namespace detail

bool is_ending() {
    return ending.load(std::memory_order_relaxed);
}

bool is_given_up() {
    return given_up.load(std::memory_order_relaxed);
}

void watch_the_end() {
    py::module_::import("atexit").attr("register")(py::cpp_function(&end_native_calls));
    const py::module_ os = py::module_::import("os");
    if (!py::hasattr(os, "register_at_fork")) return;
    // The threads of other calls are not there in a forked process.
    os.attr("register_at_fork")(py::arg("after_in_child") = py::cpp_function([] { calls = 0; }));
}

void name_memory_errors() {
    py::register_local_exception_translator([](std::exception_ptr error) {
        try {
            std::rethrow_exception(error);
        } catch (const std::bad_alloc&) {
            PyErr_SetString(PyExc_MemoryError, "not enough memory for the arguments of a call of patrac_native's core");
        }
    });
}

HeldGil::HeldGil() : state_((stay_if_given_up(), detail::staying([] { return PyGILState_Ensure(); }))) {}
HeldGil::~HeldGil() {
    detail::staying([this] { PyGILState_Release(state_); });
}

NativeCall::NativeCall() {
    if (is_ending()) {
        PyErr_SetString(PyExc_SystemExit, "patrac_native: the interpreter ends");
        throw py::error_already_set();
    }
    ++calls;
    thread_ = PyEval_SaveThread();
}

NativeCall::~NativeCall() {
    stay_if_given_up();
    detail::staying([this] { PyEval_RestoreThread(thread_); });
    --calls;
}

bool NativeCall::is_requested() {
    if (is_ending()) return true;
    const HeldGil gil;
    try {
        check_signals();
        return false;
    } catch (...) {
        raised_ = std::current_exception();
        return true;
    }
}

void check_signals() {
    if (detail::staying([] { return PyErr_CheckSignals(); }) != 0) throw py::error_already_set();
}

std::string points_words(const char* what, py::ssize_t count, py::ssize_t size, const char* points,
                         const char* coordinates) {
    return std::string(what) + " at " + std::to_string(count) + " " + points + " of " + std::to_string(size) + " " +
           coordinates;
}

void raise_interruption(const std::exception_ptr& raised) {
    if (raised) std::rethrow_exception(raised);
    PyErr_SetString(PyExc_SystemExit, "patrac_native: the interpreter ends");
    throw py::error_already_set();
}

void raise_memory_error(const std::string& what, const std::bad_alloc& failure) {
    const bool says_how_much = std::strcmp(failure.what(), std::bad_alloc().what()) != 0;
    PyErr_SetString(
        PyExc_MemoryError,
        ("not enough memory for " + what + (says_how_much ? std::string(": ") + failure.what() : "")).c_str());
    throw py::error_already_set();
}

}  // namespace patrac::bindings
