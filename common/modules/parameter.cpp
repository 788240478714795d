#include "common/modules/parameter.h"

#include <ATen/ATen.h>

#include "common/core/error.h"
#include "common/modules/autograd.h"
#include "common/modules/poison.h"
#include "common/modules/unit.h"
#include "common/ops/dtype.h"
#include "common/ops/store.h"

namespace shardbench {

namespace {

/// A tensor of the given shape whose storage has no memory yet.
at::Tensor tensor_without_memory(const std::vector<std::int64_t>& dims, std::int64_t numel,
                                 DType dtype, at::Device device) {
  const std::size_t bytes = static_cast<std::size_t>(numel) * size_of(dtype);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, at::DataPtr(nullptr, device),
      /*allocator=*/nullptr, /*resizable=*/false));
  at::Tensor tensor =
      at::empty({0}, at::TensorOptions().dtype(ops::scalar_type(dtype)).device(device));
  tensor.set_(std::move(storage), 0, dims);
  return tensor;
}

}  // namespace

Parameter::Parameter(std::string name, std::vector<std::int64_t> dims, Init init)
    : name_(std::move(name)), dims_(std::move(dims)), init_(init), numel_(1) {
  for (std::int64_t d : dims_) numel_ *= d;
  decay_ = dims_.size() >= 2;
  renew_full(at::kCPU);
}

void Parameter::renew_full(at::Device device) {
  full_ = tensor_without_memory(dims_, numel_, dtype_, device);
  poison_storage(full_, name_);
}

void Parameter::set_full_name(std::string name) {
  name_ = std::move(name);
  if (!bound_) poison_storage(full_, name_);
}

void Parameter::give_values(const at::Tensor& values) {
  SHARDBENCH_CHECK(values.sizes() == at::IntArrayRef(dims_), "values of {} have another shape",
                   name_);
  SHARDBENCH_CHECK(values.scalar_type() == at::kFloat && values.device().is_cpu(),
                   "values of {} are not fp32 on the CPU", name_);
  given_ = values.detach().contiguous();
  init_.kind = Init::Kind::kGiven;
}

void Parameter::lend_memory_to(const at::Tensor& tensor) {
  SHARDBENCH_CHECK(tensor.sizes() == at::IntArrayRef(dims_), "tensor for {} has another shape",
                   name_);
  lent_ = true;
  tensor.set_data(full_);
  tensor.unsafeGetTensorImpl()->set_version_counter(full_.unsafeGetTensorImpl()->version_counter());
}

const at::Tensor& Parameter::tensor() const {
  SHARDBENCH_CHECK(bound_,
                   "parameter {} of unit {} is used while it is resharded; call it through "
                   "the model (its unit's module), not directly",
                   name_, unit_ == nullptr ? "(none)" : unit_->name);
  return full_;
}

at::Tensor Parameter::tracked() {
  if (!requires_grad_) return tensor();
  return run_op(
      {}, {this}, [this] { return tensor().alias(); },
      [this](const std::vector<at::Tensor>& grads, const std::vector<bool>&) {
        const Target target = gradient_target();
        if (grads[0].defined()) {
          ops::store(target.view, grads[0], target.accumulate);
        } else if (!target.accumulate) {
          target.view.zero_();  // it counts as zero
        }
        gradient_written();
        return std::vector<at::Tensor>{};
      });
}

void Parameter::set_dtype(DType dtype) {
  if (dtype == dtype_) return;
  SHARDBENCH_CHECK(!bound_, "parameter {} changes its dtype while it is bound", name_);
  if (lent_) {
    throw UserError::format(
        "parameter {} stands for an fp32 tensor of a torch::nn module, which cannot compute in {}: "
        "leave the dtype at fp32",
        name_, shardbench::name_of(dtype));
  }
  dtype_ = dtype;
  renew_full(device());
}

void Parameter::set_device(at::Device device) {
  if (device == this->device()) return;
  SHARDBENCH_CHECK(!bound_, "parameter {} changes its device while it is bound", name_);
  if (lent_) {
    throw UserError::format(
        "parameter {} stands for a tensor of a torch::nn module, which stays on the CPU: leave the "
        "device at cpu",
        name_);
  }
  renew_full(device);
}

void Parameter::bind(void* data) {
  SHARDBENCH_CHECK(!bound_, "parameter {} is bound twice", name_);
  SHARDBENCH_CHECK_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
  heal_storage(full_, data);
  bound_ = true;
}

void Parameter::unbind() {
  if (!bound_) return;
  poison_storage(full_, name_);
  bound_ = false;
}

void Parameter::values_changed() {
  ++version_;
  full_.unsafeGetTensorImpl()->bump_version();
}

Parameter::Target Parameter::gradient_target() {
  SHARDBENCH_CHECK(hooks_ != nullptr, "parameter {} has no strategy attached", name_);
  SHARDBENCH_CHECK(requires_grad_, "parameter {} is frozen", name_);
  const bool accumulate = gradient_started_;
  at::Tensor view = hooks_->gradient_target(*this);
  gradient_started_ = true;
  return {std::move(view), accumulate};
}

bool Parameter::takes_rows() const { return hooks_ != nullptr && hooks_->takes_rows(*this); }

void Parameter::add_gradient_rows(const at::Tensor& indices, const at::Tensor& grad) {
  SHARDBENCH_CHECK(takes_rows(), "the gradient of {} is not kept as rows", name_);
  hooks_->add_gradient_rows(*this, indices, grad);
  gradient_started_ = true;
  gradient_written();
}

void Parameter::gradient_written() {
  if (pending_uses_ > 0) --pending_uses_;
  if (pending_uses_ == 0) hooks_->gradient_ready(*this);
}

}  // namespace shardbench
