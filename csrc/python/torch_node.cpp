/* The autograd node of a compiled function, against ATen: the same as pytorch/autograd.py in a fraction of the time.
 *
 * An extension of its own, because it fits only the torch that it was built for; where that differs, autograd.py
 * serves.  It knows a function by its methods (_run, params, wrt_positions, backward_reads) and a call by backward(grads). */
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/version.h>

namespace {

using torch::autograd::variable_list;

/* A reference that may be dropped by a thread without the GIL. */
class Reference {
 public:
  explicit Reference(PyObject* owned) : object_(owned) {}
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() { reset(); }
  PyObject* get() const { return object_; }
  void reset() {
    if (!object_ || !Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_CLEAR(object_);
    PyGILState_Release(gil);
  }

 private:
  PyObject* object_;
};

/* Names of attributes, made once. */
struct Names {
  PyObject *run = PyUnicode_InternFromString("_run"), *backward = PyUnicode_InternFromString("backward");
  PyObject *params = PyUnicode_InternFromString("params"), *wrt = PyUnicode_InternFromString("wrt_positions");
  PyObject* reads = PyUnicode_InternFromString("backward_reads");
};

const Names& names() {
  static const Names made;
  return made;
}

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
};

[[noreturn]] void rethrow() {
  python_error error;
  error.persist();
  throw error;
}

class CompiledBackward : public torch::autograd::Node {
 public:
  /* reads: the tensors whose contents the backward pass needs as they are now */
  CompiledBackward(PyObject* call, const variable_list& reads) : call_(call) {
    saved_.reserve(reads.size());
    for (const auto& variable : reads) saved_.emplace_back(variable, /*is_output=*/false);
  }

  /* The next output of the function, in order. */
  void own(const at::Tensor& output, const c10::intrusive_ptr<torch::autograd::Node>& self) {
    has_gradient_.push_back(at::isFloatingType(output.scalar_type()));
    if (has_gradient_.back()) torch::autograd::set_history(output, self);
  }

  std::string name() const override { return "CompiledBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& variable : saved_) variable.reset_data();
    call_.reset();
  }

 protected:
  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(call_.get(), torch::autograd::ERR_BACKWARD_TWICE);
    for (auto& variable : saved_) variable.unpack(); /* raises if one was changed in place */
    variable_list results = run(grads);
    if (!at::GradMode::is_enabled()) return results;
    for (auto& result : results) /* the error needs something to hang on, whatever the given gradients require */
      if (result.defined()) result = result.detach().set_requires_grad(true);
    torch::autograd::DelayedError error("a compiled function cannot be differentiated twice", (int64_t)results.size());
    return error.apply(std::move(results));
  }

 private:
  variable_list run(const variable_list& grads) {
    Gil gil;
    at::AutoGradMode off(false);
    THPObjectPtr given(PyTuple_New((Py_ssize_t)has_gradient_.size()));
    if (!given) rethrow();
    for (size_t k = 0, next = 0; k < has_gradient_.size(); k++) {
      at::Tensor grad = has_gradient_[k] ? grads[next++] : at::Tensor();
      PyTuple_SET_ITEM(given.get(), k, grad.defined() ? THPVariable_Wrap(grad) : Py_NewRef(Py_None));
    }
    THPObjectPtr made(PyObject_CallMethodOneArg(call_.get(), names().backward, given));
    if (!made) rethrow();
    variable_list results((size_t)PyTuple_GET_SIZE(made.get()));
    for (size_t k = 0; k < results.size(); k++) {
      PyObject* item = PyTuple_GET_ITEM(made.get(), k);
      if (item != Py_None) results[k] = THPVariable_Unpack(item);
    }
    return results;
  }

  std::mutex mutex_; /* two threads may run the backward of one graph */
  Reference call_;
  std::vector<bool> has_gradient_; /* by output: is it floating point? */
  std::vector<torch::autograd::SavedVariable> saved_;
};

/* Tensors by their positions among inputs and parameters, which an attribute of the function lists. */
bool collect(PyObject* function, PyObject* inputs, PyObject* attribute, variable_list* out) {
  THPObjectPtr positions(PyObject_GetAttr(function, attribute)), params(PyObject_GetAttr(function, names().params));
  if (!positions || !params) return false;
  Py_ssize_t n = PyTuple_GET_SIZE(inputs);
  out->reserve((size_t)PyTuple_GET_SIZE(positions.get()));
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(positions.get()); k++) {
    Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions.get(), k));
    PyObject* tensor = at < n ? PyTuple_GET_ITEM(inputs, at) : PyTuple_GET_ITEM(params.get(), at - n);
    TORCH_CHECK_TYPE(THPVariable_Check(tensor), "expected tensors, got ", Py_TYPE(tensor)->tp_name);
    out->push_back(THPVariable_Unpack(tensor));
    TORCH_CHECK(!out->back()._fw_grad(0).defined(), "a compiled function has no forward-mode derivative");
  }
  return true;
}

void check_transforms() {
  bool inside = c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  TORCH_CHECK(!inside, "a compiled function cannot run under torch.func transforms (vmap, grad, jvp)");
}

/* apply(function, inputs) -> outputs */
PyObject* apply(PyObject*, PyObject* const* args, Py_ssize_t n_args) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(n_args == 2 && PyTuple_Check(args[1]), "expected a function and a tuple of inputs");
  check_transforms();
  variable_list wrt, reads;
  if (!collect(args[0], args[1], names().wrt, &wrt)) return nullptr;
  THPObjectPtr pair(PyObject_CallMethodOneArg(args[0], names().run, args[1]));
  if (!pair) return nullptr;
  PyObject *outputs = PyTuple_GET_ITEM(pair.get(), 0), *call = PyTuple_GET_ITEM(pair.get(), 1);
  if (call == Py_None || !at::GradMode::is_enabled()) return Py_NewRef(outputs);
  if (!collect(args[0], args[1], names().reads, &reads)) return nullptr;
  auto node = c10::make_intrusive<CompiledBackward>(Py_NewRef(call), reads);
  node->set_next_edges(torch::autograd::collect_next_edges(wrt));
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(outputs); k++)
    node->own(THPVariable_Unpack(PyTuple_GET_ITEM(outputs, k)), node);
  return Py_NewRef(outputs);
  END_HANDLE_TH_ERRORS
}

PyMethodDef methods[] = {
    {"apply", (PyCFunction)(void (*)(void))apply, METH_FASTCALL, "apply(function, inputs) -> outputs that carry an autograd node."},
    {nullptr, nullptr, 0, nullptr}};

int set_version(PyObject* module) { return PyModule_AddStringConstant(module, "torch_version", TORCH_VERSION); }
PyModuleDef_Slot slots[] = {{Py_mod_exec, (void*)set_version}, {0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dcml._torch_node", nullptr, 0, methods, slots, nullptr, nullptr, nullptr};

}  // namespace

extern "C" PyMODINIT_FUNC PyInit__torch_node(void) { return PyModuleDef_Init(&definition); }
