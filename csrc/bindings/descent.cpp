// Bindings of the training.
#include "descent.hpp"

#include <memory>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/interpreter.hpp"

namespace patrac::bindings {
namespace {

template <class T>
void bind_descent_of(py::module_& m, const char* name, const char* update_name) {
    m.def(
        update_name,
        [](Array<T>& theta, Array<T>& mean, Array<T>& square, const Array<T>& gradient, std::int64_t update,
           double learning_rate) {
            const py::ssize_t size = theta.size();
            require(mean.size() == size && square.size() == size && gradient.size() == size, "theta shape");
            const T* const slope = gradient.data();
            T *const first = mean.mutable_data(), *const second = square.mutable_data(),
                     *const at = theta.mutable_data();
            // All four arrays are held by the caller.
            without_gil([&] { return points_words("an update", 1, size); },
                        [&] { adam_update<T>(size, update, learning_rate, slope, first, second, at); });
        },
        py::kw_only(), py::arg("theta").noconvert(), py::arg("mean").noconvert(), py::arg("square").noconvert(),
        py::arg("gradient").noconvert(), py::arg("update"), py::arg("learning_rate"));
    py::class_<Descent<T>>(m, name)
        .def(py::init([](const typename Descent<T>::Models& trained, const typename Descent<T>::Models& unseen,
                         const Array<T>& theta, double l2, double learning_rate) {
                 require(!trained.empty() && (unseen.empty() || unseen.size() == trained.size()), "models");
                 require(theta.ndim() == 2 && theta.shape(0) == std::ssize(trained), "theta shape");
                 for (const typename Descent<T>::Models* models : {&trained, &unseen})
                     for (const auto& model : *models) require(model && model->dim() == theta.shape(1), "models");
                 return without_gil(
                     [&] { return points_words("a training", theta.shape(0), theta.shape(1), "networks"); },
                     [&] { return std::make_unique<Descent<T>>(trained, unseen, theta.data(), l2, learning_rate); });
             }),
             py::kw_only(), py::arg("trained"), py::arg("unseen"), py::arg("theta").noconvert(), py::arg("l2"),
             py::arg("learning_rate"))
        .def(
            "run",
            [](Descent<T>& descent, std::int64_t epochs, std::int64_t at_once, std::int64_t threads) {
                require(epochs > 0, "epochs");
                const py::ssize_t networks = descent.networks(), dim = descent.dim();
                Array<double> losses({static_cast<py::ssize_t>(epochs), networks}),
                    unseen({static_cast<py::ssize_t>(epochs), networks});
                Array<T> best_theta({static_cast<py::ssize_t>(epochs), networks, dim});
                double *const loss = losses.mutable_data(), *const of_unseen = unseen.mutable_data();
                T* const parameters = best_theta.mutable_data();
                // All three arrays are held by this frame.
                without_gil([&] { return points_words("a training", epochs * networks, dim, "networks"); },
                            [&] { descent.run(epochs, at_once, threads, loss, of_unseen, parameters); });
                return py::make_tuple(losses, best_theta, unseen);
            },
            py::arg("epochs"), py::kw_only(), py::arg("at_once"), py::arg("threads"));
}

}  // namespace

void bind_descent(py::module_& m) {
    bind_descent_of<float>(m, "Descent32", "adam_update32");
    bind_descent_of<double>(m, "Descent64", "adam_update64");
}

}  // namespace patrac::bindings
