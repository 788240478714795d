#pragma once

namespace shardbench::micro {

/// Forward, input gradient and weight gradient of linear layers, each by every candidate.
void register_linear();

}  // namespace shardbench::micro
