#include "bench/micro/micro.h"

namespace shardbench::micro {

void set_up() {}

std::string torch_version() { return "none"; }

}  // namespace shardbench::micro
