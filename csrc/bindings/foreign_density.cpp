// Bindings of log-likelihoods that are given as functions: C function pointers, and Python callables behind one.
#include <cmath>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/run_chains.hpp"
#include "patrac.hpp"

namespace patrac::bindings {
namespace {

// A Python callable as a C function, whose context this is. The first exception ends the run and is kept for rethrow();
// the function is not called after it.
class PythonDensity {
public:
    explicit PythonDensity(py::object function) : function_(std::move(function)) {}

    static int one(std::size_t n, const double* x, double* grad, double* logp, void* context) {
        return static_cast<PythonDensity*>(context)->guarded([&](const py::object& function) {
            const auto [value, gradient] = call(function, {static_cast<py::ssize_t>(n)}, x);
            copy(value, {}, "a value", logp);
            copy(gradient, {static_cast<py::ssize_t>(n)}, "a gradient", grad);
        });
    }

    static int batched(std::size_t batch, std::size_t n, const double* x, double* grad, double* logp, void* context) {
        return static_cast<PythonDensity*>(context)->guarded([&](const py::object& function) {
            const auto rows = static_cast<py::ssize_t>(batch), columns = static_cast<py::ssize_t>(n);
            const auto [values, gradients] = call(function, {rows, columns}, x);
            copy(values, {rows}, "values", logp);
            copy(gradients, {rows, columns}, "gradients", grad);
        });
    }

    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

private:
    using Shape = std::vector<py::ssize_t>;

    // Calls body with the GIL, without which error_ is not touched; body may release it, so that another thread's body
    // may raise too. Exceptions must not pass through a C function.
    template <class Body>
    int guarded(const Body& body) {
        const HeldGil gil;
        if (error_) return 1;  // a chain that has not yet seen that the run is over
        try {
            body(function_);
            return 0;
        } catch (...) {
            if (!error_) error_ = std::current_exception();
            return 1;
        }
    }

    // The function gets an array of its own, which it may keep.
    static std::pair<py::object, py::object> call(const py::object& function, const Shape& shape, const double* x) {
        const py::object result = call_python(function, Array<double>(shape, x));
        if (!py::isinstance<py::sequence>(result) || py::len(result) != 2)
            throw py::type_error("log_likelihood_and_grad must return a value and a gradient; it returned " +
                                 std::string(py::str(py::type::handle_of(result).attr("__name__"))) + ".");
        const py::sequence pair = result;
        return {pair[0], pair[1]};
    }

    // Writes numbers of the given shape, or raises an error that begins with what the function must return.
    static void copy(const py::object& given, const Shape& shape, const char* name, double* out) {
        if (shape.empty() && PyFloat_Check(given.ptr())) {
            *out = PyFloat_AS_DOUBLE(given.ptr());
            return;
        }
        if (py::isinstance<Array<double>>(given)) {  // the usual result needs no conversion and no words
            const auto array = py::reinterpret_borrow<Array<double>>(given);
            if (shape_of(array) == shape) {
                std::copy_n(array.data(), array.size(), out);
                return;
            }
        }
        const std::string must = std::string("log_likelihood_and_grad must return ") + name;
        const std::string type(py::str(py::type::handle_of(given).attr("__name__")));
        const py::array numbers = as_array(given, must + " of real numbers; got " + type);
        if (std::string_view("biuf").find(numbers.dtype().kind()) == std::string_view::npos)
            throw py::type_error(must + " of real numbers; got " + type + " of dtype " +
                                 std::string(py::str(numbers.dtype())) + ".");
        const Shape found = shape_of(numbers);
        if (found != shape)
            throw py::value_error(must + " of shape " + std::string(py::str(py::tuple(py::cast(shape)))) + "; got " +
                                  std::string(py::str(py::tuple(py::cast(found)))) + ".");
        const auto array = py::array_t<double, py::array::c_style | py::array::forcecast>::ensure(numbers);
        if (!array) throw std::bad_alloc();
        std::copy_n(array.data(), array.size(), out);
    }

    static Shape shape_of(const py::array& array) { return {array.shape(), array.shape() + array.ndim()}; }

    // Not array_t::ensure(), which drops imaginary parts, reads numbers from text and hides why an object is no array.
    static py::array as_array(const py::object& given, const std::string& refusal) {
        if (py::isinstance<py::array>(given)) return given;
        try {
            const bool is_tensor = py::hasattr(given, "detach") && py::hasattr(given, "cpu");  // may require a gradient
            const py::object on_host = is_tensor ? call_python(call_python(given.attr("detach")).attr("cpu")) : given;
            return call_python(py::module_::import("numpy").attr("asarray"), on_host);
        } catch (const py::error_already_set& error) {
            throw py::type_error(refusal + " (" + error.what() + ").");
        }
    }

    py::object function_;
    std::exception_ptr error_;
};

// Calls run(density) with the C function at `function`, an address, or with a Python callable behind one.
template <class Run>
auto with_density(const py::object& function, std::uintptr_t context, std::int64_t dim, bool batched, const Run& run) {
    ForeignDensity density{.dim = dim};
    if (py::isinstance<py::int_>(function)) {
        const auto address = function.cast<std::uintptr_t>();
        density.context = reinterpret_cast<void*>(context);
        if (batched)
            density.batched = reinterpret_cast<BatchedDensityFunction>(address);
        else
            density.one = reinterpret_cast<DensityFunction>(address);
        return run(density);
    }
    PythonDensity callable(function);
    density.context = &callable;
    if (batched)
        density.batched = &PythonDensity::batched;
    else
        density.one = &PythonDensity::one;
    try {
        return run(density);
    } catch (...) {
        callable.rethrow();  // in place of the error code that it became
        throw;
    }
}

py::tuple evaluate_foreign(const py::object& function, std::uintptr_t context, bool batched,
                           const Array<double>& theta) {
    require(theta.ndim() == 2, "theta shape");
    Array<double> value(theta.shape(0)), gradient({theta.shape(0), theta.shape(1)});
    const auto rows = static_cast<std::size_t>(theta.shape(0)), dim = static_cast<std::size_t>(theta.shape(1));
    double *const out = value.mutable_data(), *const slope = gradient.mutable_data();
    return with_density(function, context, theta.shape(1), batched, [&](const ForeignDensity& density) {
        // All three arrays are held by this frame.
        const int code = without_gil(
            [&] { return points_words("the log-likelihood", theta.shape(0), theta.shape(1)); },
            [&] {
                if (batched) return density.batched(rows, dim, theta.data(), slope, out, density.context);
                int failure = 0;
                for (std::size_t row = 0; row < rows && failure == 0; ++row) {
                    Interruption::check();
                    failure = density.one(dim, theta.data() + row * dim, slope + row * dim, out + row, density.context);
                }
                return failure;
            });
        if (code != 0)
            throw std::runtime_error("log_likelihood_and_grad: the function returned the error code " +
                                     std::to_string(code));
        return py::make_tuple(value, gradient);
    });
}

}  // namespace

void bind_foreign_density(py::module_& m) {
    m.def("evaluate_foreign", &evaluate_foreign, py::kw_only(), py::arg("function"), py::arg("context"),
          py::arg("batched"), py::arg("theta").noconvert());
    m.def(
        "sample_foreign",
        [](const py::object& function, std::uintptr_t context, bool batched, const RunConfig& config,
           const Array<double>& init, const Array<double>& prior_variance, const py::object& progress,
           const py::object& is_enough, const std::string& level) {
            const py::ssize_t dim = prior_variance.size();
            return with_density(function, context, dim, batched, [&](const ForeignDensity& density) {
                const auto run = [&](auto&&... args) { return sample_foreign(density, args..., level); };
                return run_chains<double>(run, dim, config, init, prior_variance, progress, is_enough);
            });
        },
        py::kw_only(), py::arg("function"), py::arg("context"), py::arg("batched"), py::arg("config"),
        py::arg("init").noconvert(), py::arg("prior_variance").noconvert(), py::arg("progress"),
        py::arg("is_enough") = py::none(), py::arg("level"));
}

}  // namespace patrac::bindings
