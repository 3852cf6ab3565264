// Reads a call of a layer, and runs it, without Python's cost for each tensor that is touched.
//
// It does what call.py and kernel.py do, for plain calls alone; for any other it answers None, and
// they are asked. Knows no Slot, and keeps nothing from call to call.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>

#include "call.h"

namespace {

using at::Tensor;

// What a packing was made of, as net.py lays it out. Of each weight in turn, `stamps` has its
// address, version, dimensions, sizes and strides.
struct Packing {
  const Net* net;
  int64_t weights;
  int64_t stamps[];
};

// What a Choice does, as kernel.py lays it out.
struct Profile {
  int (*run)(const Call*);
  const Pool* pool;
  int64_t block, most, solo, wave;
  const int64_t* plan;
};

// What an entry expects of its layer, as swift.py lays it out.
struct Sizes {
  int64_t inputs, hidden, sweeps, lstm;
};

bool is_unusual_here() {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet usual{DispatchKey::BackendSelect, DispatchKey::ADInplaceOrView};
  const auto& context = at::globalContext();
  const auto precision =
      context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  // Tracing, dispatch modes and function transforms each include a key.
  return at::autocast::is_autocast_enabled(at::kCPU) ||
         (c10::impl::tls_local_dispatch_key_set().included_ - usual).raw_repr() != 0 ||
         at::impl::PythonTorchFunctionTLS::stack_len() != 0 ||
         torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr ||
         context.deterministicAlgorithms() ||
         (precision != at::Float32Precision::NONE && precision != at::Float32Precision::IEEE);
}

bool is_plain(const Tensor& value, bool grad) {
  return value.scalar_type() == at::kFloat && value.is_cpu() &&
         value.layout() == at::kStrided && !value.is_neg() && !value._is_zerotensor() &&
         !(grad && value.requires_grad());
}

// A tensor of PyTorch's own two classes; subclasses are for Python.
const Tensor* plain(PyObject* object, bool grad) {
  if (!THPVariable_CheckExact(object)) return nullptr;
  const Tensor& value = THPVariable_Unpack(object);
  return is_plain(value, grad) ? &value : nullptr;
}

bool has_facts(PyObject* layer, PyObject* facts) {
  for (Py_ssize_t at = 0; at + 1 < PyTuple_GET_SIZE(facts); at += 2) {
    PyObject* now = PyDict_GetItemWithError(layer, PyTuple_GET_ITEM(facts, at));
    PyObject* then = PyTuple_GET_ITEM(facts, at + 1);
    if (!now || (now != then && PyObject_RichCompareBool(now, then, Py_EQ) != 1)) return false;
  }
  return true;
}

// Whether the layer's flat weights are its parameters of now, each of them plain.
bool has_weights(PyObject* flat, PyObject* names, PyObject* parameters, bool grad) {
  const Py_ssize_t count = PyList_GET_SIZE(flat);
  if (PyList_GET_SIZE(names) != count) return false;
  for (Py_ssize_t at = 0; at < count; ++at) {
    PyObject* weight = PyList_GET_ITEM(flat, at);
    if (PyDict_GetItemWithError(parameters, PyList_GET_ITEM(names, at)) != weight) return false;
    if (!plain(weight, grad)) return false;
  }
  return true;
}

PyObject* wrapped(Tensor value) { return THPVariable_Wrap(std::move(value)); }

PyObject* none_for_any_fault() {
  PyErr_Clear();
  Py_RETURN_NONE;
}

// The state of a call: a new reference, or null where Python must read it.
PyObject* state_of(PyObject* given, const Sizes& sizes, int64_t rows, bool grad) {
  const int64_t shape[] = {sizes.sweeps, rows, sizes.hidden};
  if (given == Py_None) {
    const auto zeros = [&] { return wrapped(at::zeros(shape, at::kFloat)); };
    return sizes.lstm ? Py_BuildValue("(NN)", zeros(), zeros()) : zeros();
  }
  const auto fits = [&](PyObject* part) {
    const Tensor* value = plain(part, grad);
    return value && value->sizes().equals(shape);
  };
  if (!sizes.lstm) return fits(given) ? Py_NewRef(given) : nullptr;
  if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != 2) return nullptr;
  const bool both = fits(PyTuple_GET_ITEM(given, 0)) && fits(PyTuple_GET_ITEM(given, 1));
  return both ? Py_NewRef(given) : nullptr;
}

// read(layer.__dict__, facts, sizes, arguments, batch_first) -> (x_TBI, state, steps, rows) or None
PyObject* read(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 5) return PyErr_Format(PyExc_TypeError, "read takes 5 arguments, not %zd", count);
  PyObject *layer = given[0], *arguments = given[3];
  const auto& sizes = *reinterpret_cast<const Sizes*>(PyBytes_AS_STRING(given[2]));
  const Py_ssize_t some = PyTuple_GET_SIZE(arguments);
  if (some < 1 || some > 2 || is_unusual_here() || !has_facts(layer, given[1]))
    return none_for_any_fault();
  const bool grad = at::GradMode::is_enabled(), batch_first = given[4] == Py_True;
  const auto own = [&](const char* name) { return PyDict_GetItemString(layer, name); };
  PyObject *flat = own("_flat_weights"), *names = own("_flat_weights_names");
  PyObject* parameters = own("_parameters");
  if (!flat || !names || !parameters || !PyList_CheckExact(flat) || !PyList_CheckExact(names) ||
      !PyDict_Check(parameters) || !has_weights(flat, names, parameters, grad))
    return none_for_any_fault();
  const Tensor* x = plain(PyTuple_GET_ITEM(arguments, 0), grad);
  if (!x || x->dim() != 3 || x->size(2) != sizes.inputs || x->numel() == 0) Py_RETURN_NONE;
  const int64_t steps = x->size(batch_first ? 1 : 0), rows = x->size(batch_first ? 0 : 1);
  PyObject* hx = some == 2 ? PyTuple_GET_ITEM(arguments, 1) : Py_None;
  PyObject* state = state_of(hx, sizes, rows, grad);
  if (!state) Py_RETURN_NONE;
  PyObject* x_TBI = batch_first ? wrapped(x->transpose(0, 1))
                                : Py_NewRef(PyTuple_GET_ITEM(arguments, 0));
  return Py_BuildValue("(NNLL)", x_TBI, state, static_cast<long long>(steps),
                       static_cast<long long>(rows));
}

// Whether a weight is what it was when it was packed; `then` goes on to the next one's stamp.
bool is_as(const Tensor& weight, const int64_t*& then) {
  const int64_t address = *then++, version = *then++, dimensions = *then++;
  const at::IntArrayRef sizes(then, dimensions), strides(then + dimensions, dimensions);
  then += 2 * dimensions;
  return reinterpret_cast<int64_t>(weight.data_ptr()) == address &&
         (weight.is_inference() ? -1 : static_cast<int64_t>(weight._version())) == version &&
         weight.sizes() == sizes && weight.strides() == strides;
}

bool is_fresh(const Packing& packing, PyObject* flat) {
  if (PyList_GET_SIZE(flat) != packing.weights) return false;
  const int64_t* then = packing.stamps;
  for (int64_t at = 0; at < packing.weights; ++at) {
    PyObject* weight = PyList_GET_ITEM(flat, at);  // another thread may have deleted it
    if (!THPVariable_Check(weight) || !is_as(THPVariable_Unpack(weight), then)) return false;
  }
  return true;
}

PyObject* step_all(const Packing& packing, const Profile& profile, const Tensor& x, const Tensor& h,
                   const Tensor* c) {
  const Net& net = *packing.net;
  const int64_t steps = x.size(0), rows = x.size(1);
  Tensor y = at::empty({steps, rows, net.directions * net.hidden}, at::kFloat);
  Tensor h_after = at::empty(h.sizes(), at::kFloat);
  Tensor c_after = c ? at::empty(h.sizes(), at::kFloat) : h_after;
  Call call{};
  call.net = &net, call.pool = profile.pool;
  call.x = x.const_data_ptr<float>(), call.x_step = x.stride(0), call.x_row = x.stride(1);
  call.h = h.const_data_ptr<float>(), call.c = (c ? *c : h).const_data_ptr<float>();
  call.y = y.mutable_data_ptr<float>();
  call.y_row = net.directions * net.hidden, call.y_step = rows * call.y_row;
  call.h_after = h_after.mutable_data_ptr<float>();
  call.c_after = c_after.mutable_data_ptr<float>();
  call.steps = steps, call.rows = rows;
  call.block = profile.block, call.until = std::min(profile.most, steps);
  call.threads = profile.solo ? 1 : at::get_num_threads();
  call.wave = profile.wave, call.plan = profile.plan;
  int answer;
  Py_BEGIN_ALLOW_THREADS;
  answer = profile.run(&call);
  Py_END_ALLOW_THREADS;
  if (answer != RAN) Py_RETURN_NONE;
  PyObject* out = wrapped(std::move(y));
  PyObject* after = wrapped(std::move(h_after));
  if (c) after = Py_BuildValue("(NN)", after, wrapped(std::move(c_after)));
  return Py_BuildValue("(NN)", out, after);
}

// step(packing, profile, flat weights, x_TBI, state) -> (y_TBO, state), or None: not so simple
PyObject* step(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 5) return PyErr_Format(PyExc_TypeError, "step takes 5 arguments, not %zd", count);
  const auto& packing = *reinterpret_cast<const Packing*>(PyBytes_AS_STRING(given[0]));
  const auto& profile = *reinterpret_cast<const Profile*>(PyBytes_AS_STRING(given[1]));
  PyObject* state = given[4];
  const bool lstm = PyTuple_Check(state);
  if (!is_fresh(packing, given[2])) Py_RETURN_NONE;
  const Tensor& x = THPVariable_Unpack(given[3]);
  const Tensor& h = THPVariable_Unpack(lstm ? PyTuple_GET_ITEM(state, 0) : state);
  const Tensor* c = lstm ? &THPVariable_Unpack(PyTuple_GET_ITEM(state, 1)) : nullptr;
  if (x.stride(2) != 1 || !h.is_contiguous() || (c && !c->is_contiguous())) Py_RETURN_NONE;
  return step_all(packing, profile, x, h, c);
}

// What PyTorch raises in C++ becomes None: Python then meets the same fault, and words it.
template <PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)>
PyObject* guarded(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  try {
    return function(self, given, count);
  } catch (...) {
    return none_for_any_fault();
  }
}

template <PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)>
PyCFunction fast() {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(guarded<function>));
}

PyMethodDef methods[] = {
    {"read", fast<read>(), METH_FASTCALL, "A call as a Runner takes it, or None."},
    {"step", fast<step>(), METH_FASTCALL, "Run a call through the kernels, or None."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "door", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_door() { return PyModule_Create(&module); }
