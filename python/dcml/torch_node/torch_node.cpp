/* The autograd nodes of a compiled function, against ATen: the same as pytorch/call/autograd.py in a fraction of the time.
 *
 * An extension of its own, because it fits only the torch that it was built for; where that differs, call/autograd.py
 * serves.  It knows a function by _run, params, differentiable and influences, a call by parts, start(grads, results) and
 * start_last(grads, results), a backward pass by next().
 *
 * A node for each part of the backward pass: the first hangs on the outputs, each later one on the one before it,
 * whose last result, a token, carries the pass.  The engine runs what accumulates gradients first, so that these are
 * in place, and hooks on them have run, before the next part begins. */
#include <ATen/DLConvertor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/profiler/api.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <type_traits>

namespace {

using torch::autograd::variable_list;

/* A reference, or none, that may be dropped by a thread without the GIL. */
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
  PyObject *run = PyUnicode_InternFromString("_run"), *params = PyUnicode_InternFromString("params");
  PyObject *parts = PyUnicode_InternFromString("parts"), *start = PyUnicode_InternFromString("start");
  PyObject* start_last = PyUnicode_InternFromString("start_last");
  PyObject *next = PyUnicode_InternFromString("next"), *tape = PyUnicode_InternFromString("differentiable");
  PyObject* influences = PyUnicode_InternFromString("influences");
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

/* ---- tokens ---- */

void drop_token(void* context) { delete static_cast<Reference*>(context); }

/* A tensor without elements that owns a backward pass, or nothing.  It is on the device of the pass, so that the engine
 * runs what it is for in the thread, and on the stream, of that device. */
at::Tensor token_of(PyObject* pass, at::Device device) {
  auto* held = new Reference(pass);
  auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  return at::for_blob(held, {0}).context(held, drop_token).options(options).target_device(device).make_tensor();
}

PyObject* pass_of(const variable_list& grads) {
  bool ours = grads.size() == 1 && grads[0].defined() && grads[0].storage().data_ptr().get_deleter() == drop_token;
  TORCH_CHECK(ours, "a hook replaced what a compiled function passes between the parts of its backward pass");
  return Py_NewRef(static_cast<Reference*>(grads[0].storage().data_ptr().get_context())->get());
}

/* ---- nodes ---- */

/* Whether nodes count references to themselves, or shared_ptr does it beside them, differs between versions of torch. */
using NodePointer = decltype(torch::autograd::Edge::function);
constexpr bool counts_beside = std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>;
template <typename T>
using PointerTo = std::conditional_t<counts_beside, std::shared_ptr<T>, c10::intrusive_ptr<T>>;

template <typename T, typename... Arguments>
PointerTo<T> make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<PointerTo<T>, std::shared_ptr<T>>)
    return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), [](T* node) { deleteNode(node); });
  else return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
}

/* The tensors of one call, inputs and then parameters. */
struct Arguments {
  PyObject *inputs, *params;

  size_t size() const { return (size_t)(PyTuple_GET_SIZE(inputs) + (PyTuple_Check(params) ? PyTuple_GET_SIZE(params) : 0)); }

  const at::Tensor& operator[](size_t position) const {
    auto at = (Py_ssize_t)position, n = PyTuple_GET_SIZE(inputs);
    PyObject* tensor = at < n ? PyTuple_GET_ITEM(inputs, at) : PyTuple_GET_ITEM(params, at - n);
    TORCH_CHECK_TYPE(THPVariable_Check(tensor), "expected tensors, got ", Py_TYPE(tensor)->tp_name);
    return THPVariable_Unpack(tensor);
  }

  variable_list at(const std::vector<size_t>& positions) const {
    variable_list out;
    out.reserve(positions.size());
    for (size_t position : positions) {
      out.push_back((*this)[position]);
      TORCH_CHECK(!out.back()._fw_grad(0).defined(), "a compiled function has no forward-mode derivative");
    }
    return out;
  }
};

std::vector<size_t> positions_of(PyObject* tuple) {
  std::vector<size_t> out((size_t)PyTuple_GET_SIZE(tuple));
  for (size_t k = 0; k < out.size(); k++) out[k] = PyLong_AsSize_t(PyTuple_GET_ITEM(tuple, k));
  return out;
}

/* A tensor as it was when a call took it. */
struct Held {
  at::Tensor tensor;
  uint32_t version;
};

/* A result of a call as it was then.  Its history is left out, for it is the node itself. */
struct Result {
  size_t position;
  at::Tensor data;
  c10::VariableVersion counter;
  uint32_t version;

  Result(size_t at, const at::Tensor& output)
      : position(at), data(output.tensor_data()), counter(torch::autograd::impl::version_counter(output)), version(counter.current_version()) {}
  bool changed() const { return counter.current_version() != version; }
};

class CompiledBackward : public torch::autograd::Node {
 public:
  /* completes, reads: positions of arguments; the contents of the latter this part needs as they are now.  later: the node
   * of the next part, or null. */
  CompiledBackward(PyObject* call, const Arguments& arguments, std::vector<size_t> completes, std::vector<size_t> reads,
                   const PointerTo<CompiledBackward>& later, at::Device device)
      : call_(call), completes_(std::move(completes)), reads_(std::move(reads)), later_(later.get()), device_(device) {
    saved_.reserve(reads_.size());
    for (const auto& variable : arguments.at(reads_)) saved_.emplace_back(variable, /*is_output=*/false);
    auto edges = torch::autograd::collect_next_edges(arguments.at(completes_));
    if (later_) edges.emplace_back(later, 0);
    set_next_edges(std::move(edges));
  }

  /* Makes it the first part: a derivative of higher order needs all arguments, also those that no part reads. */
  void lead(PyObject* function, const Arguments& arguments) {
    function_ = std::make_unique<Reference>(function);
    std::vector<bool> read(arguments.size());
    for (auto* node = this; node; node = node->later_)
      for (size_t position : node->reads_) read[position] = true;
    others_.resize(read.size());
    for (size_t k = 0; k < read.size(); k++)
      if (!read[k]) others_[k] = {arguments[k], (uint32_t)arguments[k]._version()};
  }

  /* The next output of the function, in order. */
  void own(const at::Tensor& output, bool differentiable, const NodePointer& self) {
    has_gradient_.push_back(differentiable && at::isFloatingType(output.scalar_type()));
    if (has_gradient_.back()) torch::autograd::set_history(output, self);
  }

  /* What this part reads of the results. */
  void hold(PyObject* positions, PyObject* outputs) {
    for (size_t position : positions_of(positions)) results_.emplace_back(position, THPVariable_Unpack(PyTuple_GET_ITEM(outputs, position)));
  }

  void follow() { add_input_metadata(token_of(nullptr, device_)); }

  std::string name() const override { return "CompiledBackward"; }

  void will_release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    is_last_run_ = true;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& variable : saved_) variable.reset_data();
    others_.clear();
    results_.clear();
    call_.reset();
  }

 protected:
  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(call_.get(), torch::autograd::ERR_BACKWARD_TWICE);
    Gil gil;
    THPObjectPtr pass(function_ ? nullptr : pass_of(grads));
    if (pass && PyList_Check(pass.get())) return pick(std::move(pass)); /* the first part has found all */
    variable_list own = unpacked();
    bool keeps_history = function_ && at::GradMode::is_enabled(), batched = function_ && any_batched(grads);
    bool some = function_ && !keeps_history && device_.is_cpu() && lacks_one(grads);
    bool changed = results_changed(), anew = changed && function_ && !keeps_history;
    bool needs_all = keeps_history || anew || batched || (some && !others_changed());
    variable_list arguments = needs_all ? all_arguments(own) : variable_list();
    if (function_)
      pass = keeps_history ? by_function("gradients", arguments, grads)
             : anew        ? by_function("anew", arguments, grads)
             : batched     ? by_function("of_each", arguments, grads)
             : some        ? find_some(arguments, grads)
                           : start(grads);
    if (!pass) rethrow();
    TORCH_CHECK(!changed || PyList_Check(pass.get()), changed_result);
    if ((some || anew || batched) && is_last_run_) call_.reset();
    if (PyList_Check(pass.get())) return pick(std::move(pass));
    variable_list results = run(pass.get());
    if (later_) results.push_back(token_of(pass.release(), device_));
    return results;
  }

 private:
  /* By output, a gradient or None. */
  PyObject* given(const variable_list& grads) const {
    PyObject* tuple = PyTuple_New((Py_ssize_t)has_gradient_.size());
    for (size_t k = 0, next = 0; tuple && k < has_gradient_.size(); k++) {
      at::Tensor grad = has_gradient_[k] ? grads[next++] : at::Tensor();
      PyTuple_SET_ITEM(tuple, k, grad.defined() ? THPVariable_Wrap(grad) : Py_NewRef(Py_None));
    }
    return tuple;
  }

  PyObject* start(const variable_list& grads) {
    THPObjectPtr tuple(given(grads)), kept(results());
    if (!tuple || !kept) return nullptr;
    return PyObject_CallMethodObjArgs(call_.get(), is_last_run_ ? names().start_last : names().start, tuple.get(), kept.get(), nullptr);
  }

  /* By output, those that some part reads, else None; or None, if there are none. */
  PyObject* results() const {
    bool any = false;
    for (auto* node = this; node && !any; node = node->later_) any = !node->results_.empty();
    PyObject* tuple = any ? PyTuple_New((Py_ssize_t)has_gradient_.size()) : Py_NewRef(Py_None);
    for (size_t k = 0; any && tuple && k < has_gradient_.size(); k++) PyTuple_SET_ITEM(tuple, k, Py_NewRef(Py_None));
    for (auto* node = this; any && tuple && node; node = node->later_)
      for (const auto& result : node->results_) PyTuple_SetItem(tuple, (Py_ssize_t)result.position, THPVariable_Wrap(result.data));
    return tuple;
  }

  /* Was a result changed in place since, that this part, or, if it is the first, any part reads? */
  bool results_changed() const {
    auto changed = [](const Result& result) { return result.changed(); };
    bool any = std::any_of(results_.begin(), results_.end(), changed);
    for (auto* node = function_ ? later_ : nullptr; node && !any; node = node->later_)
      any = std::any_of(node->results_.begin(), node->results_.end(), changed);
    return any;
  }

  static constexpr const char* changed_result =
      "one of the variables needed for gradient computation has been modified by an inplace operation: a result of a compiled function, "
      "while its backward pass ran";

  /* The gradients that a part of the pass completes. */
  variable_list run(PyObject* pass) {
    at::AutoGradMode off(false);
    if (is_last_run_) call_.reset(); /* while this thread has the GIL */
    THPObjectPtr made(PyObject_CallMethodNoArgs(pass, names().next));
    if (!made) rethrow();
    variable_list results((size_t)PyTuple_GET_SIZE(made.get()));
    for (size_t k = 0; k < results.size(); k++) results[k] = tensor_or_none(PyTuple_GET_ITEM(made.get(), k));
    return results;
  }

  /* ---- gradients by a function of their own (call/twice.py) ---- */

  static bool lacks_one(const variable_list& grads) {
    return std::any_of(grads.begin(), grads.end(), [](const at::Tensor& grad) { return !grad.defined(); });
  }

  /* Does torch.vmap run the backward pass for many gradients at once? */
  static bool any_batched(const variable_list& grads) {
    auto keys = c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Batched});
    auto batched = [&](const at::Tensor& grad) { return grad.defined() && grad.key_set().has_any(keys); };
    return std::any_of(grads.begin(), grads.end(), batched);
  }

  /* Does a derivative want what the argument was?  Statistics that a call only updates may change. */
  bool matters(size_t position) const {
    Gil gil;
    THPObjectPtr found(PyObject_GetAttr(function_->get(), names().influences));
    if (!found) rethrow();
    return PyBytes_AS_STRING(found.get())[position];
  }

  bool has_changed(size_t position) const {
    const Held& other = others_[position];
    return other.tensor.defined() && other.tensor._version() != other.version && matters(position);
  }

  bool others_changed() const {
    bool any = false;
    for (size_t k = 0; k < others_.size() && !any; k++) any = has_changed(k);
    return any;
  }

  /* What this part reads; raises if one was changed in place.  Who keeps it for us, as checkpoints do, gives it once. */
  variable_list unpacked() const {
    variable_list out;
    for (const auto& variable : saved_) out.push_back(variable.unpack());
    return out;
  }

  /* own: what this part reads. */
  variable_list all_arguments(const variable_list& own) const {
    variable_list out(others_.size());
    for (auto* node = this; node; node = node->later_) {
      variable_list reads = node == this ? own : node->unpacked();
      for (size_t k = 0; k < reads.size(); k++) out[node->reads_[k]] = std::move(reads[k]);
    }
    for (size_t k = 0; k < out.size(); k++) {
      if (out[k].defined()) continue;
      TORCH_CHECK(!has_changed(k), "a second derivative needs a tensor that has been modified by an ",
                  "inplace operation since the compiled function was called: it is at version ", others_[k].tensor._version(),
                  "; expected version ", others_[k].version, " instead");
      out[k] = others_[k].tensor;
    }
    return out;
  }

  static PyObject* twice() { return PyImport_ImportModule("dcml.pytorch.call.twice"); }

  static PyObject* tuple_of(const variable_list& tensors) {
    PyObject* tuple = PyTuple_New((Py_ssize_t)tensors.size());
    for (size_t k = 0; tuple && k < tensors.size(); k++) PyTuple_SET_ITEM(tuple, k, THPVariable_Wrap(tensors[k]));
    return tuple;
  }

  /* By argument: does this pass of the engine ask for its gradient, in any part? */
  PyObject* wanted() const {
    PyObject* list = PyList_New((Py_ssize_t)others_.size());
    for (size_t k = 0; list && k < others_.size(); k++) PyList_SET_ITEM(list, k, Py_NewRef(Py_False));
    for (auto* node = this; list && node; node = node->later_)
      for (size_t k = 0; k < node->completes_.size(); k++)
        if (node->task_should_compute_output(k)) PyList_SetItem(list, (Py_ssize_t)node->completes_[k], Py_NewRef(Py_True));
    return list;
  }

  /* twice.name(function, call, arguments, wanted, grads, found, or the results if they are as they were): a list of gradients by argument. */
  PyObject* by_function(const char* name, const variable_list& arguments, const variable_list& grads, PyObject* found = nullptr) {
    THPObjectPtr module(twice()), tensors(tuple_of(arguments)), asked(wanted()), tuple(given(grads)), last(found ? Py_NewRef(found) : results_changed() ? Py_NewRef(Py_None) : results());
    if (!module || !tensors || !asked || !tuple || !last) return nullptr;
    return PyObject_CallMethod(module.get(), name, "OOOOOO", function_->get(), call_.get(), tensors.get(), asked.get(), tuple.get(), last.get());
  }

  /* The same where some results gave no gradient, for which a pass takes zeros: zero times an infinite derivative is NaN where
   * eager mode has no product at all, and then the function is asked.  arguments: empty if one was changed in place since. */
  PyObject* find_some(const variable_list& arguments, const variable_list& grads) {
    THPObjectPtr pass(start(grads)), list(PyList_New((Py_ssize_t)others_.size()));
    if (!pass || !list) return nullptr;
    for (size_t k = 0; k < others_.size(); k++) PyList_SET_ITEM(list.get(), k, Py_NewRef(Py_None));
    variable_list found;
    for (auto* node = this; node; node = node->later_) {
      THPObjectPtr made(PyObject_CallMethodNoArgs(pass.get(), names().next));
      if (!made) return nullptr;
      for (size_t k = 0; k < node->completes_.size(); k++) {
        PyObject* gradient = PyTuple_GET_ITEM(made.get(), k);
        if (gradient != Py_None && THPVariable_Unpack(gradient).numel()) found.push_back(THPVariable_Unpack(gradient));
        PyList_SetItem(list.get(), (Py_ssize_t)node->completes_[k], Py_NewRef(gradient));
      }
    }
    return arguments.empty() || !has_nan(found) ? list.release() : by_function("of_some", arguments, grads, list.get());
  }

  static bool has_nan(const variable_list& tensors) {
    if (tensors.empty()) return false;
    at::AutoGradMode off(false);
    auto sizes = at::_foreach_norm(tensors);
    return std::any_of(sizes.begin(), sizes.end(), [](const at::Tensor& size) { return std::isnan(size.item<double>()); });
  }

  /* What this part completes of the gradients found, each handed over, so that .grad may be that very tensor. */
  variable_list pick(THPObjectPtr found) const {
    variable_list out(completes_.size());
    for (size_t k = 0; k < out.size(); k++) {
      out[k] = tensor_or_none(PyList_GET_ITEM(found.get(), completes_[k]));
      PyList_SetItem(found.get(), (Py_ssize_t)completes_[k], Py_NewRef(Py_None));
    }
    if (later_) out.push_back(token_of(found.release(), device_));
    return out;
  }

  static at::Tensor tensor_or_none(PyObject* item) { return item == Py_None ? at::Tensor() : THPVariable_Unpack(item); }

  std::mutex mutex_; /* two threads may run the backward of one graph */
  Reference call_;
  std::unique_ptr<Reference> function_; /* of the first part only */
  std::vector<size_t> completes_, reads_;
  CompiledBackward* later_; /* an edge owns it */
  at::Device device_;
  bool is_last_run_ = false;
  std::vector<bool> has_gradient_; /* by output: does it hang on the node? */
  std::vector<torch::autograd::SavedVariable> saved_; /* by reads_ */
  std::vector<Held> others_; /* by argument: what no part reads */
  std::vector<Result> results_; /* that this part reads */
};

/* The chain of nodes of a call, from the last part to the first, which is returned. */
PointerTo<CompiledBackward> make_nodes(PyObject* function, PyObject* call, PyObject* parts, const Arguments& arguments, PyObject* outputs,
                                         at::Device device) {
  PointerTo<CompiledBackward> later;
  for (Py_ssize_t k = PyTuple_GET_SIZE(parts); k-- > 0;) {
    PyObject* part = PyTuple_GET_ITEM(parts, k);
    auto node = make_node<CompiledBackward>(Py_NewRef(call), arguments, positions_of(PyTuple_GET_ITEM(part, 0)),
                                                      positions_of(PyTuple_GET_ITEM(part, 1)), later, device);
    node->hold(PyTuple_GET_ITEM(part, 2), outputs);
    if (k > 0) node->follow();
    else node->lead(Py_NewRef(function), arguments);
    later = std::move(node);
  }
  return later;
}

void check_transforms() {
  bool inside = c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  TORCH_CHECK(!inside, "a compiled function cannot run under torch.func transforms (vmap, grad, jvp)");
}

bool is_on(PyObject* tape, Py_ssize_t k) { return !PyTuple_Check(tape) || k >= PyTuple_GET_SIZE(tape) || PyTuple_GET_ITEM(tape, k) == Py_True; }

/* apply(function, inputs) -> outputs */
PyObject* apply(PyObject*, PyObject* const* args, Py_ssize_t n_args) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(n_args == 2 && PyTuple_Check(args[1]), "expected a function and a tuple of inputs");
  check_transforms();
  THPObjectPtr params(PyObject_GetAttr(args[0], names().params));
  THPObjectPtr pair(params ? PyObject_CallMethodOneArg(args[0], names().run, args[1]) : nullptr);
  if (!pair) return nullptr;
  PyObject *outputs = PyTuple_GET_ITEM(pair.get(), 0), *call = PyTuple_GET_ITEM(pair.get(), 1);
  if (call == Py_None || !at::GradMode::is_enabled()) return Py_NewRef(outputs);
  THPObjectPtr parts(PyObject_GetAttr(call, names().parts));
  THPObjectPtr tape(PyObject_GetAttr(args[0], names().tape));
  if (!parts || !tape) return nullptr;
  auto device = PyTuple_GET_SIZE(outputs) ? THPVariable_Unpack(PyTuple_GET_ITEM(outputs, 0)).device() : at::Device(at::kCPU);
  auto node = make_nodes(args[0], call, parts, {args[1], params.get()}, outputs, device);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(outputs); k++)
    node->own(THPVariable_Unpack(PyTuple_GET_ITEM(outputs, k)), is_on(tape, k), node);
  return Py_NewRef(outputs);
  END_HANDLE_TH_ERRORS
}

/* ---- modes ---- */

using Modes = std::array<uint64_t, 4>;

Modes modes_now() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  auto& tape = c10::AutogradState::get_tls_state();
  bool forward_mode = torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
  uint64_t flags = tape.get_grad_mode() | tape.get_inference_mode() << 1 | torch::profiler::impl::profilerEnabled() << 2 | forward_mode << 3;
  return {keys.included_.raw_repr(), keys.excluded_.raw_repr(), flags, (uint64_t)c10::get_default_dtype_as_scalartype()};
}

/* modes() -> an object that stands for torch's modes in this thread: gradients, inference, autocast, functorch,
 * forward mode, the profiler, the default dtype.  The same modes give the same object. */
PyObject* modes(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  static std::map<Modes, PyObject*> known; /* the GIL guards it */
  PyObject*& found = known[modes_now()];
  if (!found) found = PyLong_FromSize_t(known.size() + 1000); /* past the small integers, which are shared */
  return Py_XNewRef(found);
  END_HANDLE_TH_ERRORS
}

/* ---- results ---- */

/* As torch.empty, for the core: a tensor of a DLPack type on a GPU, and where its elements are. */
PyObject* make_empty(uint8_t code, uint8_t bits, int32_t ordinal, uint32_t rank, const int64_t* dims, void** data) {
  HANDLE_TH_ERRORS
  auto type = at::toScalarType(DLDataType{code, bits, 1});
  auto made = at::empty({dims, rank}, at::TensorOptions().dtype(type).device(at::kCUDA, (c10::DeviceIndex)ordinal));
  *data = made.mutable_data_ptr();
  return THPVariable_Wrap(std::move(made));
  END_HANDLE_TH_ERRORS
}

/* Results are made on GPUs: what makes them is not called from Python. */
const auto empty_maker = &make_empty;

PyMethodDef methods[] = {
    {"modes", modes, METH_NOARGS, "modes() -> an object that stands for torch's modes in this thread."},
    {"apply", (PyCFunction)(void (*)(void))apply, METH_FASTCALL, "apply(function, inputs) -> outputs that carry an autograd node."},
    {nullptr, nullptr, 0, nullptr}};

int fill_module(PyObject* module) {
  PyObject* maker = PyCapsule_New((void*)&empty_maker, "dcml.empty_maker", nullptr);
  int failed = maker ? PyModule_AddObjectRef(module, "empty_maker", maker) : -1;
  Py_XDECREF(maker);
  return failed ? failed : PyModule_AddStringConstant(module, "torch_version", TORCH_VERSION);
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, (void*)fill_module}, {0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dcml._torch_node", nullptr, 0, methods, slots, nullptr, nullptr, nullptr};

}  // namespace

extern "C" PyMODINIT_FUNC PyInit__torch_node(void) { return PyModuleDef_Init(&definition); }
