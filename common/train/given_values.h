#pragma once

#include "common/comm/communicator.h"
#include "common/modules/module.h"

namespace shardbench::train {

/// Where parameters start from given values, each rank takes its part of its own: throws UserError
/// naming the first parameter or buffer whose values differ between ranks (each rank initialised or
/// loaded something else). Collective if the model has given values, else nothing.
void check_given_values(const Model& model, comm::Communicator& comm);

/// Lets the given values go: the strategy has taken what it keeps.
void drop_given_values(const Model& model);

}  // namespace shardbench::train
