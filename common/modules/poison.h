#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace shardbench {

/// Takes the memory of the tensor's storage away; until heal_storage any access is an error that
/// names `name`: thrown by LibTorch itself where it can be undone (2.13 and later), otherwise the
/// storage points into an unreadable page and the process ends with that message.
void poison_storage(const at::Tensor& tensor, const std::string& name);

/// Gives the storage `data` (not owned, of the tensor's device) and makes it usable again.
void heal_storage(const at::Tensor& tensor, void* data);

}  // namespace shardbench
